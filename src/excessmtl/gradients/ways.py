"""The ways to compute the gradients of every task: the first that applies to a step's graph is taken."""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from excessmtl.distributed import fsdp
from excessmtl.gradients.any_graph import task_by_task
from excessmtl.gradients.at_representation import AtRepresentation, RowsInTheMaking
from excessmtl.gradients.linear_heads import LinearHeads, find_linear_layers, release_linear_layers
from excessmtl.gradients.losses_only import NotFinite, WeightsFirst
from excessmtl.gradients.one_head import OneHead, find_one_head
from excessmtl.gradients.one_pass import SeparateHeads, SeparatePlan, backward_to_representation, find_separate_heads
from excessmtl.gradients.own_leaves import OwnLeaves, Pairs
from excessmtl.gradients.task_gradients import AtParameters, TaskGradients
from excessmtl.gradients.through_trunk import Trunk, graph_below
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Plan, plan
from excessmtl.graph.representation import FindRepresentation, given
from excessmtl.torch_private import has_node_hooks

T = TypeVar("T")
Function = Callable[[TaskGradients], T]
"""From the gradients of a batch to whatever is made of them; changes nothing else."""
Key = Callable[[], Hashable]
"""Returns what is equal for steps in which a decision takes the same operations; None for those that stand alone."""
WAYS = frozenset({"linear heads", "one head", "separate heads", "losses only"})


class AnyGraph:
    """One backward pass per task, for every graph. What a balancer asks for in every step."""

    def plan(self, inputs: StepInputs) -> Plan:
        """How far the backward pass of each task goes."""
        return plan(inputs)

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        return task_by_task(plan)

    def evaluate(self, function: Function[T], gradients: TaskGradients, plan: Plan, key: Key) -> T:
        """`function(gradients)`."""
        return function(gradients)

    def forget(self) -> None:
        """Drop whatever depends on where the balancer's state is in memory: nothing here."""


class Fastest(AnyGraph):
    """Takes quicker ways than one backward pass per task, with the same results.

    Args:
        tasks_at_once: Tasks that go through the trunk in one backward pass; None: by the device.
        ways: Those that may be taken; all by default.
    """

    def __init__(self, tasks_at_once: int | None = None, ways: frozenset[str] = WAYS) -> None:
        self.ways, self.trunk = ways, Trunk(tasks_at_once)
        self._last_losses: list[weakref.ref[Tensor]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_losses": []}

    def plan(self, inputs: StepInputs) -> Plan:
        """Separate heads where the graph has them, else the plan for any graph."""
        if "separate heads" in self.ways and inputs.scale is None and not inputs.probe.at_layer:
            separate = self._separate_plan(inputs)
            if separate is not None:
                return separate
        return super().plan(inputs)

    def _separate_plan(self, inputs: StepInputs) -> SeparatePlan | None:
        """The plan where the graph has separate heads."""
        find, shared = inputs.shared.find_representation if inputs.at is None else given(inputs.at), inputs.shared.ids
        if find is None:
            return None
        sharded = inputs.distributed and fsdp.in_use()
        heads = find_separate_heads(inputs.losses, shared, find)
        linear: LinearHeads | OneHead | None = None
        if heads is not None and "linear heads" in self.ways and not sharded:
            linear = find_linear_layers(heads)
        elif heads is None and "one head" in self.ways and not sharded:
            linear = find_one_head(inputs.losses, shared, find)
        if linear is not None and has_node_hooks(linear.nodes):  # autograd would not run these nodes
            linear = None
        elif linear is not None:
            heads = linear.heads
        if heads is None:
            return None
        if not inputs.probe.to_the_end:
            return SeparatePlan(inputs, (), False, (), sharded, heads, linear)
        trunk = graph_below(heads.representation, shared)
        if trunk is None:
            return None
        return SeparatePlan(inputs, (), True, inputs.parameters, False, heads, linear, trunk)

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        if isinstance(plan, SeparatePlan):
            return self._separate_heads(plan)
        if plan.inputs.probe is Probe.LOSSES and plan.complete and "losses only" in self.ways:
            return WeightsFirst.of(plan)
        return super().task_gradients(plan)

    def evaluate(self, function: Function[T], gradients: TaskGradients, plan: Plan, key: Key) -> T:
        """`function(gradients)`, task by task where one backward pass for all met something that is not finite."""
        try:
            return function(gradients)
        except NotFinite:
            return function(task_by_task(replace(plan, overlap=True)))

    def _separate_heads(self, plan: SeparatePlan) -> TaskGradients:
        inputs = plan.inputs
        at_z, pairs = self._backward_heads(plan)
        matrix = self._backward_trunk(plan, at_z.tensors) if plan.at_parameters else None
        return TaskGradients(
            inputs.losses,
            inputs.masks,
            inputs.scale,
            [at_z],
            OwnLeaves.of(pairs),
            matrix,
            plan.at_parameters,
            complete=matrix is not None,
            headless=not plan.own_leaves,
        )

    def _backward_heads(self, plan: SeparatePlan) -> tuple[AtRepresentation, Pairs]:
        """The gradients at z, and at leaves of the tasks' own."""
        heads, losses = plan.heads, plan.inputs.losses
        assert heads is not None
        self._release_last_losses()
        if plan.linear is not None:
            self._last_losses = [weakref.ref(loss) for loss in losses if loss is not None]
            factors: tuple[AtRepresentation, Pairs] = plan.linear.backward(losses)
            return factors
        rows = RowsInTheMaking(heads.representation, range(len(losses)))
        pairs = backward_to_representation(losses, heads, rows.add, plan.second_backward)
        return rows.finished(), pairs

    def _release_last_losses(self) -> None:
        """The nodes of linear heads are never run, so losses that somebody collects would keep every z alive."""
        release_linear_layers([loss for reference in self._last_losses if (loss := reference()) is not None])
        self._last_losses = []

    def _backward_trunk(self, plan: SeparatePlan, dz: Tensor) -> Tensor:
        """[m, n]: from z on through the trunk to the shared parameters, for every task."""
        assert plan.heads is not None
        losses = plan.inputs.losses
        tasks = [task for task, loss in enumerate(losses) if loss is not None]
        rows = AtParameters(plan.at_parameters, len(losses))
        if len(tasks) < len(losses):
            rows.matrix.zero_()
        self.trunk.backward(plan.heads.representation, plan.trunk, dz, tasks, plan.at_parameters, rows.take)
        return rows.matrix
