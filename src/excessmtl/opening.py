"""Opening a step: its arguments are checked and put in order, and the way through the graph is chosen."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor

from excessmtl import inputs
from excessmtl.gradients import sharded
from excessmtl.gradients.cut import given
from excessmtl.gradients.distributed import Pool, alone, over_processes, processes
from excessmtl.gradients.gathered import Gathered
from excessmtl.gradients.graph import leaves_below, reaches_any
from excessmtl.gradients.observation import Probe
from excessmtl.gradients.route import (
    UNREACHED,
    Route,
    check_nothing_around,
    check_representation,
    choose_route,
    in_several_hands,
)
from excessmtl.gradients.trunk import TrunkWalk
from excessmtl.gradients.validation import Validation
from excessmtl.methods.base import Heads, Rule
from excessmtl.recording.arithmetic import Arithmetic
from excessmtl.shared import Shared
from excessmtl.state import StatefulModule

_MANY_TASKS, _MANY_NUMBERS = 16, 2**24
"""From so many tasks on walking the trunk once more adds little, and so many numbers are worth not keeping."""


@dataclass
class Call:
    """The checked arguments of one `backward`."""

    losses: list[Tensor | None]
    at: list[Tensor] | None
    masks: list[Tensor | None]
    scale: Tensor | None
    metrics: Tensor | None
    validation: Validation | None
    accumulate: bool
    probe: Probe
    """Where the rule looks in this step: nowhere between two estimates."""
    model: Shared

    @cached_property
    def shared(self) -> dict[int, Tensor]:
        """The shared parameters that want a gradient, by their position among all of them."""
        return self.model.trainable

    @property
    def parameters(self) -> list[Tensor]:
        """The same in order."""
        return list(self.shared.values())


class Opening(StatefulModule):
    """Opens the steps of a balancer, whose options it expects to be checked."""

    def __init__(
        self,
        rule: Rule,
        tasks: tuple[str, ...],
        shared: Shared,
        *,
        heads: Heads,
        every: int,
        scale: float,
        pool: bool,
        tasks_at_once: int | None,
        streaming: bool | None,
        record: bool,
    ) -> None:
        shapes = [parameter.shape for parameter in shared.parameters]
        super().__init__(rule, tasks, shapes)
        self._offsets = tuple(accumulate((shape.numel() for shape in shapes), initial=0))
        self._shared = shared
        self.heads: Heads = heads
        self.every, self.scale, self.pool = every, scale, pool
        self.streaming, self._trunk = streaming, TrunkWalk(tasks_at_once)
        self.record, self._arithmetic = record, Arithmetic()
        self._pending: list[Gathered] = []
        self._reach_checked = self._flat_checked = self._outside_warned = False
        self.to(shared.parameters[0].device)

    def discard(self) -> None:
        """Forget the micro-batches of a step that is not going to be finished (`accumulate=True`, then no last one)."""
        self._pending = []

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.weights.device
        super()._apply(fn, recurse)
        if self.weights.device != before:
            self._arithmetic = Arithmetic()  # recordings would hold on to memory where nothing else is any more
        return self

    def _open(
        self, losses: Any, at: Any, mask: Any, scaler: Any, accumulate: bool, metrics: Any, validation: Any
    ) -> Call:
        for argument, value in (("metrics", metrics), ("validation_losses", validation)):
            if value is not None and argument not in self.rule.uses:
                raise ValueError(f"{argument} is not used by {self.rule.name!r}; leave it out")
            if value is not None and accumulate:
                raise ValueError(
                    f"{argument} is used with the last micro-batch only; leave it out with accumulate=True"
                )
        if self.streaming:
            self._check_streaming(scaler, accumulate)
        ordered = inputs.ordered_losses(losses, self.tasks)
        tensors = None if at is None else inputs.representation(at, self.tasks)
        masks = inputs.label_masks(mask, self.tasks)
        device = next(loss.device for loss in ordered if loss is not None)
        indicators = inputs.metric_values(metrics, self.tasks, device)
        if self.weights.device != device:
            self.to(device)
        scale = None if scaler is None else scaler.scale(torch.ones((), device=device))
        probe = self.rule.probe if self._steps % self.every == 0 else Probe.LOSSES
        return Call(ordered, tensors, masks, scale, indicators, validation, accumulate, probe, self._shared)

    def _check_streaming(self, scaler: Any, accumulate: bool) -> None:
        """A ValueError for what needs the gradients that streaming lets go."""
        for what, asked in (
            ("scaler", scaler is not None),
            ("accumulate=True", accumulate),
            ("several processes that decide together", self._together() is not alone),
        ):
            if asked:
                raise ValueError(f"streaming does not go with {what}; make the balancer with streaming=False")

    def _streams(self, call: Call, route: Route) -> bool:
        """Whether gradients are let go once they are reduced: when asked, or when there are many that nothing needs."""
        if call.probe is not Probe.SHARED:
            return False
        if self.streaming is not None:
            return self.streaming
        many = len(self.tasks) >= _MANY_TASKS and len(self.tasks) * self._offsets[-1] > _MANY_NUMBERS
        needed = call.scale is not None or call.accumulate or self._pending or self._together() is not alone
        return self.rule.streams and many and route.heads is not None and not needed

    def _route(self, call: Call, stacklevel: int = 3) -> Route:
        spread = sharded.in_use()
        if call.probe in (Probe.SHARED, Probe.LAYER):
            sharded.check_whole(self.rule.name, call.parameters)
        if not self._flat_checked:
            sharded.check_not_flat(call.losses)
            self._flat_checked = True
        route = choose_route(
            call.losses,
            self.tasks,
            self._shared.ids,
            call.probe,
            self._shared.find_cut if call.at is None else given(call.at),
            explicit=call.at is not None,
            sharded=spread,
        )
        if self.streaming and call.probe is Probe.SHARED and route.heads is None:
            raise ValueError(
                "streaming needs tasks that meet the shared parameters at one tensor and nowhere above it; pass the "
                "module that computes it as shared, or make the balancer with streaming=False"
            )
        route.streams = self._streams(call, route)
        if call.probe is Probe.REPRESENTATION:
            check_representation(route.cuts)
        if call.probe is Probe.REPRESENTATION and self.rule.per_sample:
            for cut in route.cuts:  # now, while nothing has been walked or freed
                cut.check_unchanged()
        if route.mode == "cut" and not self._reach_checked:  # once: it walks the whole trunk
            # A sharded parameter is not in the graph: the leaf that is there takes its place for a while.
            if not reaches_any(route.cuts, leaves_below(route.cuts) if spread else call.parameters):
                raise ValueError(UNREACHED)
            check_nothing_around(route, self.tasks)
            self._reach_checked = True
        if route.heads is None and not self._outside_warned and (warning := in_several_hands(route.reaches)):
            self._outside_warned = True
            warnings.warn(warning, stacklevel=stacklevel)
        return route

    def _together(self) -> Pool:
        """How statistics are summed over the processes that train together."""
        return over_processes if self.pool and processes() > 1 else alone
