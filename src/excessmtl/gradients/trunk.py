"""The way from z down to the shared parameters, for each task: several at a time where that is faster and works."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.capture import Cut
from excessmtl.gradients.hooks import asleep
from excessmtl.gradients.rows import ParameterRows, index_of

_AT_ONCE = {"cuda": 8}
"""A GPU is filled by a few tasks, and memory grows with every one; a CPU is faster task by task."""
_LOOPED = "There is a performance drop because we have not yet implemented the batching rule"
"""How torch begins to say that it will call an operator for one task after the other all the same."""


class TrunkWalk:
    """Walks the trunk for all tasks, `tasks_at_once` in one pass of the autograd engine (None: by the device).

    In such a pass every operator works on the gradients of several tasks (`torch.vmap`). Some cannot: those with
    sparse gradients, functions and hooks that look at values, operators that torch would loop over. What has failed
    once is not tried again: from then on the walk goes task by task, which works for every graph.
    """

    def __init__(self, tasks_at_once: int | None = None) -> None:
        self.tasks_at_once = tasks_at_once
        self.possible = True
        """Whether several tasks at once are still thought to work."""
        self._known: frozenset[str] = frozenset()

    def fill(
        self,
        rows: ParameterRows,
        cut: Cut,
        kinds: frozenset[str],
        dz: Tensor,
        there: Sequence[bool],
        parameters: Sequence[Tensor],
    ) -> None:
        """From `dz` [m, ...] at the cut to the rows of all tasks; zeros for those not `there`. Frees the graph.

        `kinds`: of the nodes below the cut. The first graph with a new kind is kept until the caller lets go of it,
        because what turns out not to work has to be walked again.
        """
        tasks = [task for task, given in enumerate(there) if given]
        for task in set(range(len(there))) - set(tasks):
            rows.fill(task, [None] * len(parameters))
        at_once = self.tasks_at_once or _AT_ONCE.get(dz.device.type, 1)
        with asleep(parameters):
            if self.possible and min(at_once, len(tasks)) > 1:
                self.possible = self._several(rows, cut, kinds, dz, _even_parts(tasks, at_once), parameters)
                if self.possible:
                    return
            for task in tasks:
                rows.fill(task, _gradients(cut, parameters, dz[task], retain=task != tasks[-1]))

    def _several(
        self,
        rows: ParameterRows,
        cut: Cut,
        kinds: frozenset[str],
        dz: Tensor,
        parts: Sequence[Sequence[int]],
        parameters: Sequence[Tensor],
    ) -> bool:
        """Whether it worked. If not, the graph is still there."""
        if kinds <= self._known:
            return self._several_of_known_kinds(rows, cut, dz, parts, parameters)
        try:
            with _looping_refused():
                for part in parts:
                    rows.fill_several(part, _gradients_of_several(cut, parameters, _picked(dz, part), retain=True))
        except Exception:  # whatever a hook or a function of the user's may raise; if it is a bug, it will again
            return False
        self._known |= kinds
        return True

    def _several_of_known_kinds(
        self,
        rows: ParameterRows,
        cut: Cut,
        dz: Tensor,
        parts: Sequence[Sequence[int]],
        parameters: Sequence[Tensor],
    ) -> bool:
        for part in parts:
            retain = part is not parts[-1]
            try:
                rows.fill_several(part, _gradients_of_several(cut, parameters, _picked(dz, part), retain))
            except Exception as error:
                if retain:
                    return False
                self.possible = False
                error.add_note("Walking the trunk for several tasks at once has worked before. Pass tasks_at_once=1.")
                raise
        return True


def _gradients(cut: Cut, parameters: Sequence[Tensor], dz: Tensor, retain: bool) -> Sequence[Tensor | None]:
    edge: Any = cut.edge
    return torch.autograd.grad(edge, parameters, dz, retain_graph=retain, allow_unused=True)


def _gradients_of_several(cut: Cut, parameters: Sequence[Tensor], dz: Tensor, retain: bool) -> list[Tensor | None]:
    """The same for `dz` [k, ...]."""
    reached: list[bool] = []

    def of_one(dz: Tensor) -> tuple[Tensor, ...]:
        found = _gradients(cut, parameters, dz, retain)
        reached.extend(gradient is not None for gradient in found)
        return tuple(gradient for gradient in found if gradient is not None)

    several = iter(torch.vmap(of_one)(dz))
    return [next(several) if there else None for there in reached]


@contextmanager
def _looping_refused() -> Iterator[None]:
    """Inside, an operator that torch can only call for one task after the other is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", _LOOPED)
        yield


def _even_parts(tasks: Sequence[int], most: int) -> list[Sequence[int]]:
    """As few parts as `most` allows, as equal as can be: the largest decides how much memory is needed."""
    count = math.ceil(len(tasks) / most)
    ends = [len(tasks) * part // count for part in range(count + 1)]
    return [tasks[start:end] for start, end in pairwise(ends)]


def _picked(dz: Tensor, tasks: Sequence[int]) -> Tensor:
    first, end = tasks[0], tasks[-1] + 1
    return dz[first:end] if end - first == len(tasks) else dz[index_of(tuple(tasks), dz.device)]
