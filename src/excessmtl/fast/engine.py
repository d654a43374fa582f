"""The fast engine: the first way that applies to a step's graph is taken, and the reference where none does."""

import weakref
from dataclasses import replace
from typing import Any

from torch import Tensor

from excessmtl.engine import fsdp
from excessmtl.engine.per_task import ParameterRows, per_task_gradients
from excessmtl.engine.plan import Call, Plan, Probe
from excessmtl.engine.plan import plan as reference_plan
from excessmtl.engine.private_torch import has_node_hooks
from excessmtl.engine.reference import Key
from excessmtl.engine.representation import FindRepresentation, given
from excessmtl.engine.task_gradients import HeadGradients, TaskGradients
from excessmtl.fast.batched import AtRepresentation, BatchedHeads, Stacked, group_leaves
from excessmtl.fast.find_linear import find_linear_layers
from excessmtl.fast.linear_heads import release_linear_layers
from excessmtl.fast.losses_only import OneBackward
from excessmtl.fast.one_head import find_one_head
from excessmtl.fast.selection import Selected, through_selection
from excessmtl.fast.separate_heads import SeparateHeads, SeparatePlan, backward_to_representation, find_separate_heads
from excessmtl.fast.thresholds import Thresholds
from excessmtl.fast.trunk import Trunk, graph_below

WAYS = frozenset({"linear heads", "one head", "separate heads", "selection", "losses only"})
_Found = tuple[SeparateHeads, Any]
"""The heads, and `LinearHeads`, `OneHead` or None."""
_SELECTION_TRIES = 3
"""Steps in which heads on one position of a sequence are looked for: who has them has them in every step."""


class FastEngine:
    """Takes quicker ways than one backward pass per task, with the same results.

    Args:
        tasks_at_once: Tasks that go through the trunk in one backward pass; None: by the device.
        thresholds: Where one way becomes faster than another.
        ways: Those that may be taken; all by default.
    """

    def __init__(
        self,
        tasks_at_once: int | None = None,
        thresholds: Thresholds | None = None,
        ways: frozenset[str] = WAYS,
    ) -> None:
        self.thresholds, self.ways = thresholds or Thresholds(), ways
        self.trunk = Trunk(tasks_at_once, self.thresholds)
        self._selections_tried = 0
        """In how many steps selected positions were looked for in vain since they were last found."""
        self._last_losses: list[weakref.ref[Tensor]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_losses": []}

    def plan(self, call: Call) -> Plan:
        """Separate heads where the graph has them, else the plan of the reference."""
        if "separate heads" in self.ways and call.scale is None and call.probe is not Probe.LAYER:
            separate = self._separate_plan(call)
            if separate is not None:
                return separate
        return reference_plan(call)

    def _separate_plan(self, call: Call) -> SeparatePlan | None:
        """The plan where the graph has separate heads."""
        find, shared = call.shared.find_representation if call.at is None else given(call.at), call.shared.ids
        if find is None:
            return None
        sharded = fsdp.in_use()
        found = self._search(call, shared, find, sharded)
        if found is None:
            return None
        heads, linear = found
        if call.probe is not Probe.SHARED:
            return SeparatePlan(call, (), False, (), sharded, heads, linear)
        trunk = graph_below(heads.representation, shared)
        if trunk is None:
            return None
        return SeparatePlan(call, (), True, call.parameters, False, heads, linear, trunk)

    def _search(self, call: Call, shared: frozenset[int], find: FindRepresentation, sharded: bool) -> _Found | None:
        heads = self._find_heads(call, shared, find, sharded)
        if heads is None:
            one = find_one_head(call.losses, shared, find) if "one head" in self.ways and not sharded else None
            return None if one is None or has_node_hooks(one[1].nodes) else one
        linear = find_linear_layers(heads) if "linear heads" in self.ways and not sharded else None
        if linear is not None and has_node_hooks(linear.nodes):  # autograd would not run these nodes
            linear = None
        return heads, linear

    def _find_heads(
        self, call: Call, shared: frozenset[int], find: FindRepresentation, sharded: bool
    ) -> SeparateHeads | None:
        if self._selections_tried < _SELECTION_TRIES and "selection" in self.ways and call.takes_vectors:
            self._selections_tried += 1
            heads = None if sharded else find_separate_heads(call.losses, shared, through_selection(find))
            if heads is not None and isinstance(heads.representation, Selected) and self._can_deliver(heads, call):
                self._selections_tried = 0
                return heads
        return find_separate_heads(call.losses, shared, find)

    def _can_deliver(self, heads: SeparateHeads, call: Call) -> bool:
        """Whether one selection serves all tasks, or each has its own and the trunk is passed once."""
        if not isinstance(heads.representation, Selected) or len(heads.representation.edges) == 1:
            return True
        return call.probe is not Probe.SHARED and heads.own_edges is not None

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        call = plan.call
        if not isinstance(plan, SeparatePlan):
            if call.probe is Probe.LOSSES and plan.complete and "losses only" in self.ways:
                return _task_gradients(plan, OneBackward(plan))
            return per_task_gradients(plan)
        heads, at_z = self._backward_heads(plan)
        return self._backward_trunk(plan, heads, at_z) if plan.at_parameters else _task_gradients(plan, heads)

    def evaluate(self, function: Any, gradients: TaskGradients, plan: Plan, key: Key) -> Any:
        """`function(gradients)`, task by task where one backward pass for all met something that is not finite."""
        outcome = function(gradients)
        return function(per_task_gradients(replace(plan, overlap=True))) if outcome.parts is None else outcome

    def forget(self) -> None:
        """Nothing here depends on where the balancer's state is in memory."""

    def _backward_heads(self, plan: SeparatePlan) -> tuple[HeadGradients, AtRepresentation]:
        heads, call = plan.heads, plan.call
        assert heads is not None
        z = heads.representation.stored
        at_z: AtRepresentation
        self._release_last_losses()
        if plan.linear is not None:
            self._last_losses = [weakref.ref(loss) for loss in call.losses if loss is not None]
            at_z, leaves = plan.linear.backward(call.losses, z)
        else:
            at_z = rows = Stacked.empty_like(z, len(call.losses))
            leaves = backward_to_representation(call.losses, heads, rows.add, plan.second_backward)
            rows.finish()
        groups = group_leaves(leaves)
        there = tuple([loss is not None for loss in call.losses])
        found = BatchedHeads(heads.representation, at_z, groups or [], there)
        if groups is not None:
            return found, at_z
        sparse = found.per_task()
        for own, more in zip(sparse.at_leaves, leaves, strict=True):
            own.extend(more)
        return sparse, at_z

    def _release_last_losses(self) -> None:
        """The nodes of linear heads are never run, so losses that somebody collects would keep every z alive."""
        release_linear_layers([loss for reference in self._last_losses if (loss := reference()) is not None])
        self._last_losses = []

    def _backward_trunk(self, plan: SeparatePlan, heads: HeadGradients, at_z: AtRepresentation) -> TaskGradients:
        """On through the trunk for every task."""
        assert plan.heads is not None
        call, z = plan.call, plan.heads.representation
        tasks = [task for task, loss in enumerate(call.losses) if loss is not None]
        dz, parameters = at_z.tensors, plan.at_parameters
        rows = ParameterRows(parameters, len(call.losses))
        if rows.flat is not None and len(tasks) < len(call.losses):
            rows.flat.zero_()
        self.trunk.backward(z, plan.trunk, dz, tasks, parameters, rows.take, retain_graph=False)
        heads.without_representation()
        found = _task_gradients(plan, heads)
        return replace(found, at_parameters=rows.flat, parameters=parameters, complete=True)


def _task_gradients(plan: Plan, heads: HeadGradients) -> TaskGradients:
    return TaskGradients(plan.call.losses, plan.call.masks, plan.call.scale, heads, headless=not plan.own_leaves)
