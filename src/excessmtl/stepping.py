"""One step, in order: what the batch shows, what the rule says to it, and the gradients that makes."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from excessmtl import inputs
from excessmtl.gradients import sharded
from excessmtl.gradients.capture import given
from excessmtl.gradients.combined import combined
from excessmtl.gradients.distributed import Pool, alone, over_processes, processes
from excessmtl.gradients.gather import gather
from excessmtl.gradients.gather_heads import gather_heads
from excessmtl.gradients.gathered import Gathered, all_finite, beside, exact, without_gradients
from excessmtl.gradients.graph import leaves_below, reaches_any
from excessmtl.gradients.observation import Observation, Probe
from excessmtl.gradients.observe import observe
from excessmtl.gradients.route import (
    UNREACHED,
    Route,
    check_nothing_around,
    check_representation,
    choose_route,
    in_several_hands,
)
from excessmtl.gradients.trunk import TrunkWalk
from excessmtl.gradients.validation import Validation, validation_products
from excessmtl.gradients.write import Contribution, contributions
from excessmtl.methods.base import Decision, Heads, Rule
from excessmtl.shared import Shared
from excessmtl.state import StatefulModule
from excessmtl.step import Step


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
    shared: dict[int, Tensor]
    """The shared parameters that want a gradient, by their position among all of them."""

    @property
    def parameters(self) -> list[Tensor]:
        """The same in order."""
        return list(self.shared.values())


class Stepping(StatefulModule):
    """Takes the steps of a balancer, whose options it expects to be checked."""

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
        streaming: bool,
    ) -> None:
        shapes = [parameter.shape for parameter in shared.parameters]
        super().__init__(rule, tasks, shapes)
        self._offsets = tuple(accumulate((shape.numel() for shape in shapes), initial=0))
        self._shared = shared
        self.heads: Heads = heads
        self.every, self.scale, self.pool = every, scale, pool
        self.streaming, self._trunk = streaming, TrunkWalk(tasks_at_once)
        self._pending: list[Gathered] = []
        self._reach_checked = self._flat_checked = self._outside_warned = False
        self.to(shared.parameters[0].device)

    def discard(self) -> None:
        """Forget the micro-batches of a step that is not going to be finished (`accumulate=True`, then no last one)."""
        self._pending = []

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
        trainable = self._shared.trainable
        return Call(ordered, tensors, masks, scale, indicators, validation, accumulate, probe, trainable)

    def _check_streaming(self, scaler: Any, accumulate: bool) -> None:
        """A ValueError for what needs the gradients that streaming lets go."""
        for what, asked in (
            ("scaler", scaler is not None),
            ("accumulate=True", accumulate),
            ("several processes that decide together", self._together() is not alone),
        ):
            if asked:
                raise ValueError(f"streaming does not go with {what}; make the balancer with streaming=False")

    def _route(self, call: Call, stacklevel: int = 3) -> Route:
        shared = call.parameters
        spread = sharded.in_use()
        sharded.check_probe(call.probe, self.rule.name, shared)
        if not self._flat_checked:
            sharded.check_not_flat(call.losses)
            self._flat_checked = True
        route = choose_route(
            call.losses,
            self.tasks,
            shared,
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
        if call.probe is Probe.REPRESENTATION:
            check_representation(route.cuts)
        if call.probe is Probe.REPRESENTATION and self.rule.per_sample:
            for cut in route.cuts:  # now, while nothing has been walked or freed
                cut.check_unchanged()
        if route.mode == "cut" and not self._reach_checked:  # once: it walks the whole trunk
            # A sharded parameter is not in the graph: the leaf that is there takes its place for a while.
            if not reaches_any(route.cuts, leaves_below(route.cuts) if spread else shared):
                raise ValueError(UNREACHED)
            check_nothing_around(route, self.tasks)
            self._reach_checked = True
        if route.heads is None and not self._outside_warned and (warning := in_several_hands(route.reaches)):
            self._outside_warned = True
            warnings.warn(warning, stacklevel=stacklevel)
        return route

    def _work_out(
        self, call: Call, route: Route, heads: Heads
    ) -> tuple[Gathered, Decision | None, Tensor, list[Contribution]]:
        """What the batch shows, what the rule says to it, the weights to apply, and the gradients they make."""
        random = self._generator.get_state() if route.mode == "combined" else None
        batch = self._collect(call, route)
        decision, weights = self._decide(call, batch)
        parts = self._parts(call, route, batch, decision, weights, heads)
        if parts is None and random is not None:  # something is not finite: walk task by task to find out whose
            self._generator.set_state(random)
            batch = self._collect(call, replace(route, mode="direct", overlap=True))
            decision, weights = self._decide(call, batch)
            parts = self._parts(call, route, batch, decision, weights, heads)
        return batch, decision, weights, parts or []

    def _collect(self, call: Call, route: Route) -> Gathered:
        if route.mode == "combined":
            return without_gradients(call.losses, call.masks, call.scale)
        direct = route.mode == "direct"
        if route.heads is not None and call.scale is None:
            below = call.parameters if direct else ()
            return gather_heads(
                call.losses,
                route.heads,
                call.masks,
                parameters=below,
                trunk=self._trunk,
                kinds=route.kinds,
                keep=route.again,
                reduce=partial(self._reduce, call) if self.streaming and direct else None,
            )
        probed: Sequence[Tensor] = ()
        if direct:
            probed = call.parameters
        elif call.probe is Probe.LAYER:
            probed = self._shared.layer
        return gather(
            call.losses,
            route.reaches,
            parameters=probed,
            masks=call.masks,
            scale=call.scale,
            overlap=route.overlap,
            keep=route.again or (bool(probed) and not direct),
            final=direct,
        )

    def _reduce(self, call: Call, tasks: slice, rows: Tensor, ok: Tensor) -> Tensor:
        """What the rule makes of the gradients of some tasks, which are not going to be kept."""
        with exact(rows):
            seen = Observation(
                losses=rows.new_zeros(len(rows)),
                ok=ok,
                rows=beside(rows, call.parameters),
                matrix=rows,
                positions=tuple(call.shared),
                offsets=self._offsets_of(call),
            )
            return self.rule.reduce(self.state, tasks, seen)

    def _decide(self, call: Call, batch: Gathered) -> tuple[Decision | None, Tensor]:
        """What the rule says, and the weights to apply to this batch."""
        pending = [] if self.rule.gated else self._pending
        if call.accumulate and not self.rule.gated:
            return None, self.weights
        if self._steps % self.every:
            return None, self.weights
        batches = [*pending, batch]
        cross = None
        if call.validation is not None:
            ahead, module = self.rule.lookahead(self.state), self._shared.module
            cross = validation_products(call.validation, self.tasks, batches, ahead, module)
        with exact(batch.values):
            seen = observe(
                batches,
                call.probe,
                per_sample=self.rule.per_sample,
                layer=self._shared.layer if call.probe is Probe.LAYER else (),
                positions=tuple(call.shared),
                offsets=self._offsets_of(call),
                metrics=call.metrics,
                cross=cross,
                generator=self._generator,
                pool=self._together(),
            )
            decision = self.rule.update(self.state, seen)
        decision = replace(decision, weights=torch.where(seen.ok, decision.weights, self.weights).detach())
        late = bool(pending) and not self._holds(call, batch)
        return decision, self.weights if late else decision.weights

    def _holds(self, call: Call, batch: Gathered) -> bool:
        """Whether gradients of micro-batches wait for the last one, to be given the weights of all together."""
        return batch.final and call.probe is not Probe.LOSSES

    def _parts(
        self,
        call: Call,
        route: Route,
        batch: Gathered,
        decision: Decision | None,
        weights: Tensor,
        heads: Heads,
    ) -> list[Contribution] | None:
        """The gradients to write now; None when the combined backward met something that is not finite."""
        weights = self._scaled(weights)
        own = weights if heads == "weighted" else None
        if not batch.final and route.mode == "combined":
            multipliers = None if heads == "weighted" else batch.ok.to(weights.dtype)
            parts = combined(call.losses, route.reaches, call.parameters, weights * batch.ok, multipliers, call.scale)
            with exact(weights):
                finite = all_finite([gradient for _, gradient in parts], weights)
            # The one host read of this route: a task cannot be set aside once its gradient has joined the others'.
            # All processes walk again, or none: what follows are sums over all of them.
            bad = (~finite).float() if self._together() is alone else over_processes((~finite).float())
            return None if bool(bad > 0) else parts
        gates = None if decision is None else decision.gates
        if gates is not None:
            gates = tuple(tuple(gate * self.scale for gate in task) for task in gates)
        held = [batch]
        if self._holds(call, batch):
            held = [] if call.accumulate else [one for one in (*self._pending, batch) if one.final]
        with exact(weights):
            return [part for one in held for part in contributions(one, weights, own, gates)]

    def _offsets_of(self, call: Call) -> tuple[int, ...]:
        """Where each shared parameter that wants a gradient begins among all of them."""
        return tuple(self._offsets[position] for position in call.shared)

    def _scaled(self, weights: Tensor) -> Tensor:
        return weights if self.scale == 1 else weights * self.scale

    def _together(self) -> Pool:
        """How statistics are summed over the processes that train together."""
        return over_processes if self.pool and processes() > 1 else alone

    def _close(self, call: Call, batch: Gathered, decision: Decision | None, applied: Tensor) -> Step:
        left_out = batch.labelled ^ batch.ok  # who is ok is labelled
        if batch.overflow is not None:  # not the task's fault, unless its loss itself is bad
            left_out = left_out & (~batch.overflow | ~batch.values.isfinite())
        self._buffers["skipped"] = self.skipped + left_out  # past `__setattr__`, as in `remember`
        if decision is not None:
            if decision.finish is not None:
                decision.finish()
            self.remember(decision.state)
            self._buffers["weights"] = decision.weights
        if call.accumulate and not self.rule.gated:
            if self._steps % self.every == 0:
                self._pending = [*self._pending, batch if self._holds(call, batch) else batch.without_graph()]
        else:
            if self._pending:
                self._pending = []
            self._steps += 1
        risks = None if decision is None else decision.excess_risks
        return Step(
            tasks=self.tasks,
            weights=torch.where(left_out, 0, self._scaled(applied)),
            losses=torch.where(batch.labelled, batch.values, torch.nan),
            excess_risks=torch.full_like(batch.values, torch.nan)
            if risks is None
            else torch.where(batch.ok, risks, torch.nan),
            left_out=left_out,
        )
