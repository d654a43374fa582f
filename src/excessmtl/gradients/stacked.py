"""Gradients of all tasks in one tensor, so that masking, checking and weighing them takes a few operations, not m.

The plain way beside it (`gather`, `write`) goes task by task and serves every case; this one serves dense gradients
without a loss scale.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.linear import Layers, Owned
from excessmtl.gradients.maps import Maps
from excessmtl.gradients.products import Products
from excessmtl.gradients.rows import Rows, index_of

Own = Sequence[Sequence[tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class Alike:
    """Leaves of one shape, of some of the tasks."""

    leaves: list[Tensor]
    tasks: tuple[int, ...]
    rows: Rows

    def among(self, values: Tensor) -> Tensor:
        """The entries of `values` [m] that belong to these leaves."""
        return values if self._of_each(values) else values[index_of(self.tasks, values.device)]

    def added(self, total: Tensor) -> Tensor:
        """`total` [m] and the sums of these leaves."""
        sums = self.rows.sums()
        return total + sums if self._of_each(total) else total.index_add(0, index_of(self.tasks, total.device), sums)

    def owned(self, heads: Tensor | None) -> Iterator[Owned]:
        """The gradients of these leaves, times `heads` [m] (None: one)."""
        scaled = self.rows.flat
        if heads is not None:
            scaled = scaled * self.among(heads).to(scaled.dtype).unsqueeze(1)
        return zip(self.tasks, self.leaves, self.rows.shaped(scaled).unbind(), strict=True)

    def _of_each(self, values: Tensor) -> bool:
        return self.tasks == tuple(range(len(values)))


@dataclass(frozen=True)
class Stacked:
    """The gradients of all m tasks at the one tensor z where they meet the trunk, and at their own leaves."""

    cut: Cut
    at_cut: Rows | Maps | Products
    there: tuple[bool, ...]
    """Whether a loss was given for the task."""
    own: list[Alike]
    """The leaves, but for those of linear layers whose gradients `at_cut` has."""

    @property
    def cuts(self) -> list[list[tuple[Cut, Tensor]]]:
        """Per task: the cut and its gradient there."""
        each = self.at_cut.copies() if isinstance(self.at_cut, Maps) else self.at_cut.tensors.unbind()
        return [[(self.cut, dz)] if there else [] for dz, there in zip(each, self.there, strict=True)]

    def sums(self) -> Tensor:
        """[m]; finite if and only if everything of the task is (or is beyond any use)."""
        total = self.at_cut.sums()
        for group in self.own:
            total = group.added(total)
        return total

    def zero_unless(self, ok: Tensor) -> None:
        """Set everything of the tasks that are not ok to zero."""
        self.at_cut.keep(ok)
        for group in self.own:
            group.rows.keep(group.among(ok))

    def owned(self, heads: Tensor | None, ok: Tensor) -> Iterator[Owned]:
        """The gradients of the tasks' own leaves, times `heads` (None: one)."""
        if isinstance(self.at_cut, Layers):
            yield from self.at_cut.owned(heads, ok)
        for group in self.own:
            yield from group.owned(heads)

    def without_graph(self) -> "Stacked":
        """What the statistics need."""
        at_cut = self.at_cut.alone() if isinstance(self.at_cut, Layers) else self.at_cut
        if isinstance(at_cut, Maps):
            at_cut.copies()  # a head recorded as a CUDA graph would write its next gradient over the one it left
        return replace(self, cut=self.cut.without_graph(), at_cut=at_cut, own=[])


def stacked(cut: Cut, at_cut: Rows | Maps | Products, there: tuple[bool, ...], own: Own) -> Stacked | None:
    """All of it in one, or None where a task's own gradients are sparse."""
    alike: dict[tuple[torch.Size, torch.dtype], list[tuple[int, Tensor, Tensor]]] = {}
    for task, pairs in enumerate(own):
        for leaf, gradient in pairs:
            if gradient.is_sparse:
                return None
            alike.setdefault((gradient.shape, gradient.dtype), []).append((task, leaf, gradient))
    groups = []
    for members in alike.values():
        tasks, leaves, gradients = zip(*members, strict=True)
        groups.append(Alike(list(leaves), tasks, Rows.of(gradients)))
    return Stacked(cut, at_cut, there, groups)


def by_task(owned: Iterable[Owned], tasks: int) -> list[list[tuple[Tensor, Tensor]]]:
    """Per task: (leaf, gradient)."""
    pairs: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(tasks)]
    for task, leaf, gradient in owned:
        pairs[task].append((leaf, gradient))
    return pairs
