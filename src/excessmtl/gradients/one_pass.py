"""One backward pass for the heads of all tasks, where they meet at one tensor z and nowhere above it.

`Fastest` takes the quickest way that the graph of a step allows, with the same numbers as one backward pass per task.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from excessmtl.distributed import fsdp
from excessmtl.gradients.any_graph import AnyGraph, Function, Key, T, task_by_task
from excessmtl.gradients.at_representation import AtRepresentation, RowsInTheMaking
from excessmtl.gradients.linear_heads import (
    LinearHeads,
    OneHead,
    find_linear_heads,
    find_one_head,
    release_linear_layers,
)
from excessmtl.gradients.losses_only import NotFinite, WeightsFirst
from excessmtl.gradients.own_leaves import OwnLeaves, Pairs, by_task
from excessmtl.gradients.task_gradients import AtParameters, TaskGradients
from excessmtl.gradients.through_trunk import Trunk, TrunkGraph, graph_below
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Plan, plan
from excessmtl.graph.representation import Representation, nothing_below
from excessmtl.graph.search import Explored, Reach, explore
from excessmtl.tensors import dense
from excessmtl.torch_private import gradients_from, has_node_hooks, hooks_disabled

WAYS = frozenset({"linear heads", "one head", "separate heads", "losses only"})


@dataclass(kw_only=True)
class OnePassPlan(Plan):
    """A plan for heads that meet at z alone; `at_parameters` are all shared parameters, or none."""

    linear: LinearHeads | OneHead | None = None
    """Where all tasks take z by a linear layer."""
    trunk: TrunkGraph | None = None
    """Where the gradients below z are computed for every task."""
    separate_heads: ClassVar[bool] = True


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
        """One backward pass for all heads where the graph allows it, else the plan for any graph."""
        explored: Explored | None = None
        find, probe = inputs.find_representation, inputs.probe
        if find is not None and inputs.scale is None and not probe.partway and "separate heads" in self.ways:
            explored = explore(inputs.losses, inputs.shared_ids, find)
            one_pass = self._one_pass_plan(inputs, explored)
            if one_pass is not None:
                return one_pass
        return plan(inputs, explored)

    def _one_pass_plan(self, inputs: StepInputs, graph: Explored) -> OnePassPlan | None:
        """The plan where tasks meet at z alone, or at one linear layer above it."""
        sharded = inputs.distributed and fsdp.in_use()
        z, find = graph.only_representation(inputs.losses), inputs.find_representation
        linear: LinearHeads | OneHead | None = None
        if z is not None and "linear heads" in self.ways and not sharded:
            linear = find_linear_heads(z, graph)
        elif z is None and find is not None and "one head" in self.ways and not sharded:
            linear = find_one_head(inputs.losses, inputs.shared_ids, find)
        if linear is not None and has_node_hooks(linear.nodes):  # autograd would not run these nodes
            linear = None
        elif linear is not None:
            z = linear.representation
        if z is None:
            return None
        if not inputs.probe.to_the_end:
            return OnePassPlan(
                inputs=inputs, graph=graph, representations=[z], overlap=False, second_backward=sharded, linear=linear
            )
        trunk = graph_below(z, inputs.shared_ids)
        if trunk is None:
            return None
        return OnePassPlan(
            inputs=inputs,
            graph=graph,
            representations=[z],
            overlap=False,
            at_parameters=inputs.parameters,
            complete=True,
            linear=linear,
            trunk=trunk,
        )

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        if isinstance(plan, OnePassPlan):
            return self._one_pass(plan)
        if plan.inputs.probe is Probe.LOSSES and plan.complete and "losses only" in self.ways:
            return WeightsFirst.of(plan)
        return task_by_task(plan)

    def evaluate(self, function: Function[T], gradients: TaskGradients, plan: Plan, key: Key) -> T:
        """`function(gradients)`, task by task where one backward pass for all met something that is not finite."""
        try:
            return function(gradients)
        except NotFinite:
            return function(task_by_task(replace(plan, overlap=True)))

    def _one_pass(self, plan: OnePassPlan) -> TaskGradients:
        inputs = plan.inputs
        at_z, pairs = self._backward_heads(plan)
        return TaskGradients(
            inputs.losses,
            inputs.masks,
            inputs.scale,
            [at_z],
            OwnLeaves.of(pairs) if pairs else None,
            None if plan.trunk is None else self._backward_trunk(plan, plan.trunk, at_z.tensors),
            plan.at_parameters,
            complete=plan.complete,
            headless=not any(reach.leaves for reach in plan.graph.reaches),
        )

    def _backward_heads(self, plan: OnePassPlan) -> tuple[AtRepresentation, Pairs]:
        """The gradients at z, and at leaves of the tasks' own."""
        losses, (z,) = plan.inputs.losses, plan.representations
        self._release_last_losses()
        if plan.linear is not None:
            self._last_losses = [weakref.ref(loss) for loss in losses if loss is not None]
            return plan.linear.backward(losses)
        rows = RowsInTheMaking(z, range(len(losses)))
        pairs = backward_to_representation(losses, z, plan.graph.reaches, rows.add, plan.second_backward)
        return rows.finished(), pairs

    def _release_last_losses(self) -> None:
        """The nodes of linear heads are never run, so losses that somebody collects would keep every z alive."""
        alive = [loss for reference in self._last_losses if (loss := reference()) is not None]
        if alive:
            release_linear_layers(alive)
        self._last_losses = []

    def _backward_trunk(self, plan: Plan, trunk: TrunkGraph, dz: Tensor) -> Tensor:
        """[m, n]: from z on through the trunk to the shared parameters, for every task."""
        losses = plan.inputs.losses
        tasks = [task for task, loss in enumerate(losses) if loss is not None]
        rows = AtParameters(plan.at_parameters, len(losses))
        if len(tasks) < len(losses):
            rows.matrix.zero_()
        self.trunk.backward(plan.representations[0], trunk, dz, tasks, plan.at_parameters, rows.take)
        return rows.matrix


def backward_to_representation(
    losses: Sequence[Tensor | None],
    representation: Representation,
    reaches: Sequence[Reach],
    store: Callable[[int, Tensor], None],
    retain_graph: bool,
) -> Pairs:
    """One backward pass for all heads: hands the tasks' gradients at z to `store`, returns those at their own leaves.

    A hook on each node just above z takes the task's gradient as it arrives, before autograd adds it to the others'.
    """
    leaves = [list(reach.leaves.values()) for reach in reaches]
    every_leaf = [leaf for own in leaves for leaf in own]
    z = representation.tensor()
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
        for task, reach in enumerate(reaches)
        for node, positions in reach.takers.items()
    ]
    try:
        with hooks_disabled([z, *every_leaf]), nothing_below([representation]):
            gradients = gradients_from(losses, [representation.edge, *every_leaf], retain_graph)
    finally:
        for hook in hooks:
            hook.remove()
    return by_task(leaves, gradients[1:])
