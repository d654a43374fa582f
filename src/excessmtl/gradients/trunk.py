"""The way from z down to the shared parameters, for each task: several at a time where that is faster and works."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.engine import gradients
from excessmtl.gradients.hooks import asleep
from excessmtl.gradients.rows import index_of

Take = Callable[[Sequence[int], Sequence[Tensor | None]], None]
"""What is done with the gradients [k, ...] of some tasks at all parameters (None: not reached)."""
_AT_ONCE, _FILLED = 8, 2**24
"""On a GPU: a few tasks fill it, and memory grows with every one; so many numbers at z fill it too."""


class TrunkWalk:
    """Walks the trunk for all tasks, `tasks_at_once` in one pass of the autograd engine (None: by the device).

    In such a pass every operator works on the gradients of several tasks (`torch.vmap`). Some cannot: those with
    sparse gradients, functions and hooks that look at values. What has failed once is not tried again: from then on the
    walk goes task by task, which works for every graph.
    """

    def __init__(self, tasks_at_once: int | None = None) -> None:
        self.tasks_at_once = tasks_at_once
        self.possible = True
        """Whether several tasks at once are still thought to work."""
        self._known: frozenset[str] = frozenset()

    def walk(
        self,
        cut: Cut,
        kinds: frozenset[str],
        dz: Tensor,
        tasks: Sequence[int],
        parameters: Sequence[Tensor],
        take: Take,
        keep: bool,
    ) -> None:
        """From `dz` [m, ...] at the cut down to the parameters, for these tasks; the graph is freed unless `keep`.

        `kinds`: of the nodes below the cut. The first graph with a new kind is kept until the caller lets go of it,
        because what turns out not to work has to be walked again.
        """
        at_once = self.tasks_at_once or _usual(dz)
        with asleep(parameters):
            if self.possible and min(at_once, len(tasks)) > 1:
                tasks = self._several(cut, kinds, dz, _even_parts(tasks, at_once), parameters, take, keep)
            for task in tasks:
                found = _gradients(cut, parameters, dz[task], retain=keep or task != tasks[-1])
                take([task], [None if gradient is None else gradient[None] for gradient in found])
                del found  # before the next walk, not after it

    def _several(
        self,
        cut: Cut,
        kinds: frozenset[str],
        dz: Tensor,
        parts: Sequence[Sequence[int]],
        parameters: Sequence[Tensor],
        take: Take,
        keep: bool,
    ) -> Sequence[int]:
        """The tasks that are left to be walked one by one: none where all goes well."""
        known, left = kinds <= self._known, list(parts)
        while left and self.possible:
            retain = keep or not known or len(left) > 1
            try:
                found = _gradients_of_several(cut, parameters, _picked(dz, left[0]), retain)
            except Exception as error:  # whatever a hook or a function of the user's may raise
                self.possible = False
                if retain:  # if the error is a bug and not ours, it will come again
                    break
                error.add_note("Walking the trunk for several tasks at once has worked before. Pass tasks_at_once=1.")
                raise
            take(left.pop(0), found)
            del found  # before the next walk, not after it
        if self.possible:
            self._known |= kinds
        return [task for part in left for task in part]


def _gradients(cut: Cut, parameters: Sequence[Tensor], dz: Tensor, retain: bool) -> Sequence[Tensor | None]:
    return gradients([cut.edge], [dz], parameters, retain)


def _gradients_of_several(cut: Cut, parameters: Sequence[Tensor], dz: Tensor, retain: bool) -> list[Tensor | None]:
    """The same for `dz` [k, ...]."""
    reached: list[bool] = []

    def of_one(dz: Tensor) -> tuple[Tensor, ...]:
        found = _gradients(cut, parameters, dz, retain)
        reached.extend(gradient is not None for gradient in found)
        return tuple(gradient for gradient in found if gradient is not None)

    with _quietly():
        several = iter(torch.vmap(of_one)(dz))
    return [next(several) if there else None for there in reached]


@contextmanager
def _quietly() -> Iterator[None]:
    """Inside, torch does not warn that it calls some operator for one task after the other.

    A walk in which one operator is looped over (fused attention is) is still faster than a walk per task. A filter for
    warnings would do as well, but setting one makes Python show all warnings again that it has shown once.
    """
    warn: Callable[[bool], None] = torch._C._functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    warn(False)
    try:
        yield
    finally:
        warn(True)


def _usual(dz: Tensor) -> int:
    """How many tasks at once, for gradients `dz` [m, ...]; a CPU is faster task by task."""
    return 1 if dz.device.type == "cpu" else max(1, min(_AT_ONCE, _FILLED * len(dz) // max(dz.numel(), 1)))


def _even_parts(tasks: Sequence[int], most: int) -> list[Sequence[int]]:
    """As few parts as `most` allows, as equal as can be: the largest decides how much memory is needed."""
    count = math.ceil(len(tasks) / most)
    ends = [len(tasks) * part // count for part in range(count + 1)]
    return [tasks[start:end] for start, end in pairwise(ends)]


def _picked(dz: Tensor, tasks: Sequence[int]) -> Tensor:
    first, end = tasks[0], tasks[-1] + 1
    return dz[first:end] if end - first == len(tasks) else dz[index_of(tuple(tasks), dz.device)]
