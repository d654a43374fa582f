"""The quickest way that the graph of a step allows, with the same numbers as one backward pass per task.

Where tasks meet at one tensor z and nowhere above it, one backward pass serves the heads of all of them.
"""

import weakref
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from excessmtl.distributed import fsdp
from excessmtl.gradients.any_graph import AnyGraph, task_by_task
from excessmtl.gradients.at_representation import (
    LeafGradient,
    Rows,
    backward_to_representation,
    grouped,
)
from excessmtl.gradients.linear_heads import AtRepresentation, LinearHeads, find_linear_heads, release_linear_layers
from excessmtl.gradients.losses_only import WeightsFirst
from excessmtl.gradients.one_head import OneHead, find_one_head
from excessmtl.gradients.task_gradients import TaskGradients
from excessmtl.gradients.through_trunk import Trunk, TrunkGraph, graph_below
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Explored, Plan, explore, plan
from excessmtl.graph.representation import FindRepresentation
from excessmtl.torch_private import has_node_hooks

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
        allowed = inputs.scale is None and not inputs.probe.partway and "separate heads" in self.ways
        if allowed and (find := inputs.finder()) is not None:
            explored = explore(inputs.losses, inputs.shared_ids, find)
            one_pass = self._one_pass_plan(inputs, explored, find)
            if one_pass is not None:
                return one_pass
        return plan(inputs, explored)

    def _one_pass_plan(self, inputs: StepInputs, graph: Explored, find: FindRepresentation) -> OnePassPlan | None:
        """The plan where tasks meet at z alone, or at one linear layer above it."""
        sharded = inputs.distributed and fsdp.in_use()
        z = graph.only_representation(inputs.losses)
        linear: LinearHeads | OneHead | None = None
        if z is not None and "linear heads" in self.ways and not sharded:
            linear = find_linear_heads(z, graph)
        elif z is None and "one head" in self.ways and not sharded:
            linear = find_one_head(inputs.losses, inputs.shared_ids, find)
        if linear is not None and has_node_hooks(linear.nodes):  # autograd would not run these nodes
            linear = None
        elif linear is not None:
            z = linear.representation
        complete = inputs.probe.to_the_end
        trunk = graph_below(z, inputs.shared_ids) if z is not None and complete else None
        if z is None or (complete and trunk is None):
            return None
        return OnePassPlan(
            inputs=inputs,
            graph=graph,
            representations=[z],
            overlap=False,
            at_parameters=inputs.parameters if complete else (),
            complete=complete,
            second_backward=sharded,
            linear=linear,
            trunk=trunk,
        )

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        if isinstance(plan, OnePassPlan):
            return self._one_pass(plan)
        if plan.inputs.probe is Probe.LOSSES and plan.complete and "losses only" in self.ways:
            inputs, headless = plan.inputs, not plan.own_leaves
            return WeightsFirst(inputs.losses, inputs.masks, inputs.scale, headless=headless, plan=plan)
        gradients = task_by_task(plan)
        alone, groups = grouped(gradients.at_leaves)
        return replace(gradients, at_leaves=alone, groups=groups)

    def _one_pass(self, plan: OnePassPlan) -> TaskGradients:
        inputs, matrix = plan.inputs, None
        at_z, at_leaves = self._backward_heads(plan)
        alone, groups = grouped(at_leaves) if at_leaves else ([], [])
        if plan.trunk is not None:
            z = plan.representations[0]
            matrix = self.trunk.backward(z, plan.trunk, at_z.tensors, inputs.losses, plan.at_parameters)
        return TaskGradients(
            inputs.losses,
            inputs.masks,
            inputs.scale,
            at_z=[at_z],
            at_leaves=alone,
            groups=groups,
            at_parameters=matrix,
            parameters=plan.at_parameters,
            complete=plan.complete,
            headless=not any(reach.leaves for reach in plan.reaches),
        )

    def _backward_heads(self, plan: OnePassPlan) -> tuple[AtRepresentation, list[LeafGradient]]:
        """The gradients at z, and at leaves of the tasks' own."""
        losses, (z,) = plan.inputs.losses, plan.representations
        self._release_last_losses()
        if plan.linear is not None:
            self._last_losses = [weakref.ref(loss) for loss in losses if loss is not None]
            return plan.linear.backward(losses)
        rows = Rows.awaited(z, range(len(losses)), plan.inputs)
        at_leaves = backward_to_representation(losses, rows, plan.graph.reaches, plan.second_backward)
        return rows, at_leaves

    def _release_last_losses(self) -> None:
        """The nodes of linear heads are never run, so losses that somebody collects would keep every z alive."""
        alive = [loss for reference in self._last_losses if (loss := reference()) is not None]
        if alive:
            release_linear_layers(alive)
        self._last_losses = []
