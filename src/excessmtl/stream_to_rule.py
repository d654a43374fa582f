"""Gradients that are not kept: the rule takes what it needs of each task as soon as the trunk has been passed.

For the paper's estimate on all shared parameters of many tasks. The accumulators of a task change in the middle of the
step, so it is the one way of taking a step that cannot be undone when the step fails.
"""

import warnings
from functools import partial

from torch import Tensor

from excessmtl.engine.distributed import no_reduction
from excessmtl.engine.observation import Observation
from excessmtl.engine.plan import Call, Probe
from excessmtl.engine.tensors import autocast_disabled, split_by_parameter
from excessmtl.methods.base import Rule, State


class Streaming:
    """Whether steps may stream, and whether the last one that did was finished.

    Args:
        wanted: True: always, or a ValueError. False: never. None: where the engine finds it worth while.
    """

    def __init__(self, wanted: bool | None) -> None:
        self.wanted = wanted
        self.interrupted = False

    def allow(self, call: Call, rule: Rule, state: State, offsets: tuple[int, ...], pending: bool) -> None:
        """Let the engine reduce gradients as they come, unless something else needs them."""
        needed = {
            "scaler": call.scale is not None,
            "accumulate=True": call.accumulate or pending,
            "several processes that decide together": call.reduction is not no_reduction,
        }
        for what, present in needed.items():
            if self.wanted and present:
                raise ValueError(f"streaming does not go with {what}; make the balancer with streaming=False")
        if call.probe is Probe.SHARED and not any(needed.values()):
            call.reduce = partial(self._reduce, rule, state, offsets)
            call.must_stream = bool(self.wanted)
        if self.interrupted:
            self.interrupted = False
            warnings.warn(
                "the step before failed after the accumulators of some tasks had been updated, so these are a step "
                "ahead; load the last saved state, or make the balancer with streaming=False",
                stacklevel=4,
            )

    def _reduce(
        self, rule: Rule, state: State, offsets: tuple[int, ...], call: Call, tasks: slice, rows: Tensor, ok: Tensor
    ) -> Tensor:
        """What the rule makes of the gradients of some tasks. Its accumulators change now."""
        self.interrupted = True
        with autocast_disabled(rows):
            seen = Observation(
                losses=rows.new_zeros(len(rows)),
                ok=ok,
                rows=split_by_parameter(rows, call.parameters),
                matrix=rows,
                positions=tuple(call.trainable),
                offsets=tuple(offsets[position] for position in call.trainable),
            )
            return rule.reduce(state, tasks, seen)
