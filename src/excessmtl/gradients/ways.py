"""The ways to compute the gradients of every task: the first that applies to a step's graph is taken."""

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from excessmtl.distributed import fsdp
from excessmtl.gradients.any_graph import task_by_task
from excessmtl.gradients.at_representation import AtRepresentation, RowsInTheMaking
from excessmtl.gradients.heads import (
    LinearHeads,
    SeparateHeads,
    find_linear_layers,
    find_separate_heads,
    release_linear_layers,
)
from excessmtl.gradients.losses_only import NotFinite, WeightsFirst
from excessmtl.gradients.one_head import OneHead, find_one_head
from excessmtl.gradients.own_leaves import OwnLeaves, Pairs, by_task
from excessmtl.gradients.task_gradients import AtParameters, TaskGradients
from excessmtl.gradients.through_trunk import Trunk, TrunkGraph, graph_below
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Plan, plan
from excessmtl.graph.representation import Representation, nothing_below
from excessmtl.graph.search import Reach
from excessmtl.tensors import dense
from excessmtl.torch_private import gradients_from, has_node_hooks, hooks_disabled

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


@dataclass
class SeparatePlan(Plan):
    """A plan for separate heads; `at_parameters` are all shared parameters, or none."""

    heads: SeparateHeads | None = None
    linear: LinearHeads | OneHead | None = None
    """Where all tasks take z by a linear layer."""
    trunk: TrunkGraph | None = None
    """Where the gradients below z are computed for every task."""
    separate_heads: ClassVar[bool] = True

    @cached_property
    def reaches(self) -> Sequence[Reach]:
        """What each loss reaches; without z where the backward passes go on to the shared parameters."""
        assert self.heads is not None
        z = {} if self.at_parameters else {id(self.heads.representation): self.heads.representation}
        pairs = zip(self.heads.leaves, self.heads.entries, strict=True)
        return [Reach({id(leaf): leaf for leaf in leaves}, z if above else {}) for leaves, above in pairs]

    @property
    def recognised(self) -> list[Representation]:
        """The tensor z."""
        assert self.heads is not None
        return [self.heads.representation]


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
        if "separate heads" in self.ways and inputs.scale is None and not inputs.probe.partway:
            separate = self._separate_plan(inputs)
            if separate is not None:
                return separate
        return super().plan(inputs)

    def _separate_plan(self, inputs: StepInputs) -> SeparatePlan | None:
        """The plan where the graph has separate heads."""
        find, shared = inputs.find_representation, inputs.shared_ids
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
        inputs, heads = plan.inputs, plan.heads
        assert heads is not None
        at_z, pairs = self._backward_heads(plan, heads)
        return TaskGradients(
            inputs.losses,
            inputs.masks,
            inputs.scale,
            [at_z],
            OwnLeaves.of(pairs) if pairs else None,
            None if plan.trunk is None else self._backward_trunk(plan, plan.trunk, at_z.tensors),
            plan.at_parameters,
            complete=plan.trunk is not None,
            headless=not any(heads.leaves),
        )

    def _backward_heads(self, plan: SeparatePlan, heads: SeparateHeads) -> tuple[AtRepresentation, Pairs]:
        """The gradients at z, and at leaves of the tasks' own."""
        losses = plan.inputs.losses
        self._release_last_losses()
        if plan.linear is not None:
            self._last_losses = [weakref.ref(loss) for loss in losses if loss is not None]
            return plan.linear.backward(losses)
        rows = RowsInTheMaking(heads.representation, range(len(losses)))
        pairs = backward_to_representation(losses, heads, rows.add, plan.second_backward)
        return rows.finished(), pairs

    def _release_last_losses(self) -> None:
        """The nodes of linear heads are never run, so losses that somebody collects would keep every z alive."""
        alive = [loss for reference in self._last_losses if (loss := reference()) is not None]
        if alive:
            release_linear_layers(alive)
        self._last_losses = []

    def _backward_trunk(self, plan: SeparatePlan, trunk: TrunkGraph, dz: Tensor) -> Tensor:
        """[m, n]: from z on through the trunk to the shared parameters, for every task."""
        losses = plan.inputs.losses
        tasks = [task for task, loss in enumerate(losses) if loss is not None]
        rows = AtParameters(plan.at_parameters, len(losses))
        if len(tasks) < len(losses):
            rows.matrix.zero_()
        self.trunk.backward(plan.recognised[0], trunk, dz, tasks, plan.at_parameters, rows.take)
        return rows.matrix


def backward_to_representation(
    losses: Sequence[Tensor | None], heads: SeparateHeads, store: Callable[[int, Tensor], None], retain_graph: bool
) -> Pairs:
    """One backward pass for all heads: hands the tasks' gradients at z to `store`, returns those at their own leaves.

    A hook on each node just above z takes the task's gradient as it arrives, before autograd adds it to the others'.
    """
    leaves = [leaf for own in heads.leaves for leaf in own]
    z = heads.representation.tensor()
    passed_on = False

    def taking(task: int, positions: list[int]) -> Callable[..., Any]:
        def take(inputs: tuple[Tensor | None, ...], outputs: object) -> tuple[Tensor | None, ...]:
            nonlocal passed_on
            passed = list(inputs)
            for position in positions:
                if (gradient := inputs[position]) is not None:
                    # User hooks on z still expect a tensor, so one gradient is passed on. The hooks of a z that nobody
                    # holds cannot be disabled, and some overwrite what they see.
                    passed[position] = None if passed_on else torch.clone(gradient) if z is None else gradient
                    passed_on = True
                    store(task, dense(gradient))
            return tuple(passed)

        return take

    hooks = [
        node.register_hook(taking(task, positions))
        for task, above in enumerate(heads.entries)
        for node, positions in above.items()
    ]
    try:
        with hooks_disabled([z, *leaves]), nothing_below([heads.representation]):
            gradients = gradients_from(losses, [heads.representation.edge, *leaves], retain_graph)
    finally:
        for hook in hooks:
            hook.remove()
    return by_task(heads.leaves, gradients[1:])
