"""One step, in order: what the batch shows, what the rule says to it, and the gradients that makes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.combined import combined
from excessmtl.gradients.distributed import alone, over_processes
from excessmtl.gradients.gather import gather
from excessmtl.gradients.gathered import Gathered, all_finite, beside, exact, without_gradients
from excessmtl.gradients.observation import Observation, Probe
from excessmtl.gradients.observe import observe
from excessmtl.gradients.route import Route
from excessmtl.gradients.validation import validation_products
from excessmtl.gradients.walked import Walked
from excessmtl.gradients.walks import reduce_trunk, walk_heads, walk_trunk
from excessmtl.gradients.write import Contribution, contributions
from excessmtl.methods.base import Decision, Heads
from excessmtl.opening import Call, Opening
from excessmtl.recording.arithmetic import Outcome
from excessmtl.step import Step


class Stepping(Opening):
    """Takes the steps that have been opened."""

    @property
    def situation(self) -> tuple[Any, ...]:
        """What decides, beside the losses, which operations the next step consists of: equal for equal steps."""
        module = self._shared.module
        training = module is not None and module.training
        return self.rule, training, self.heads, self.scale, self._steps % self.every == 0

    def _walk(self, call: Call, route: Route) -> Walked | None:
        """What autograd finds where the heads can be walked together; None where they are walked one by one."""
        if route.heads is None or call.scale is not None:
            return None
        rows = call.probe is Probe.REPRESENTATION and not self.rule.per_sample  # these it wants in one tensor
        apart = route.mode == "cut" and not rows
        walked = walk_heads(call.losses, route.heads, call.masks, keep=route.again, apart=apart)
        if route.mode == "direct" and not route.streams:
            walked = walk_trunk(walked, self._trunk, route.kinds, call.parameters)
        return walked

    def _recordable(self, call: Call, route: Route) -> bool:
        """Whether all that follows the walk is arithmetic, and the same for the next batch like this one."""
        return (
            self.record
            and self.rule.replayable
            and not (route.streams or call.accumulate or self._pending or route.again)
            and call.metrics is None
            and call.validation is None
            and self._together() is alone
        )

    def _taken(self, call: Call, route: Route, walked: Walked) -> Outcome:
        """The gradients to write, and the step, from a recording where there is one."""

        def work(walked: Walked) -> Outcome:
            batch, decision, weights, parts = self._work_out(call, route, self.heads, walked)
            return parts, self._close(call, batch, decision, weights)

        return self._arithmetic.outcome(walked, self.situation, self, work)

    def _work_out(
        self, call: Call, route: Route, heads: Heads, walked: Walked | None
    ) -> tuple[Gathered, Decision | None, Tensor, list[Contribution]]:
        """What the batch shows, what the rule says to it, the weights to apply, and the gradients they make."""
        random = self._generator.get_state() if route.mode == "combined" else None
        batch = self._collect(call, route, walked)
        decision, weights = self._decide(call, batch)
        parts = self._parts(call, route, batch, decision, weights, heads)
        if parts is None and random is not None:  # something is not finite: walk task by task to find out whose
            self._generator.set_state(random)
            batch = self._collect(call, replace(route, mode="direct", overlap=True), None)
            decision, weights = self._decide(call, batch)
            parts = self._parts(call, route, batch, decision, weights, heads)
        return batch, decision, weights, parts or []

    def _collect(self, call: Call, route: Route, walked: Walked | None) -> Gathered:
        if route.mode == "combined":
            return without_gradients(call.losses, call.masks, call.scale)
        direct = route.mode == "direct"
        if walked is not None and route.streams:
            return reduce_trunk(walked, self._trunk, route.kinds, call.parameters, partial(self._reduce, call))
        if walked is not None:
            return walked.gathered()
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

    def _left_of(self, call: Call, batch: Gathered) -> Gathered:
        """What is still needed of a batch when its gradients have been given their weights.

        Large ones are let go now: while the trunk is walked they would stand beside all that is saved there.
        """
        if call.accumulate and self._holds(call, batch):
            return batch.without_representation()
        waits = call.accumulate and call.probe is Probe.REPRESENTATION and not self.rule.gated
        return batch.without_graph() if waits else batch.without_heads()

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
                self._pending = [*self._pending, batch]
        else:
            if self._pending:
                self._pending = []
            self._steps += 1
        risks = None if decision is None else decision.excess_risks
        return Step.of(
            self.tasks,
            weights=torch.where(left_out, 0, self._scaled(applied)),
            losses=torch.where(batch.labelled, batch.values, torch.nan),
            excess_risks=torch.full_like(batch.values, torch.nan)
            if risks is None
            else torch.where(batch.ok, risks, torch.nan),
            left_out=left_out,
        )
