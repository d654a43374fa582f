"""The gradients at leaves outside `shared`: parameters of the heads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.at_representation import LeafGradient, Stacked
from excessmtl.graph.search import one_head_for_all
from excessmtl.tensors import dense, index_of, magnitude, on_values, zeroed_unless

Pairs = Sequence[Sequence[tuple[Tensor, Tensor]]]
"""Per task: leaves and their gradients."""


@dataclass(frozen=True)
class LeafGroup:
    """The gradients at leaves of one shape, each of one task alone."""

    leaves: list[Tensor]
    tasks: tuple[int, ...]
    gradients: Stacked

    def among(self, values: Tensor) -> Tensor:
        """The entries of `values` [m] that belong to these leaves."""
        return values if self._of_all(values) else values[index_of(self.tasks, values.device)]

    def added_to(self, total: Tensor) -> Tensor:
        """`total` [m] and the norms of these gradients."""
        sizes = self.gradients.magnitudes().to(total.device)
        return total + sizes if self._of_all(total) else total.index_add(0, index_of(self.tasks, total.device), sizes)

    def weighted(self, own: Tensor | None) -> list[LeafGradient]:
        """(task, leaf, gradient), times `own` [m] (None: 1)."""
        flat = self.gradients.flat
        if own is not None:
            flat = flat * self.among(own).to(flat.dtype).unsqueeze(1)
        return list(zip(self.tasks, self.leaves, self.gradients.shaped(flat).unbind(), strict=True))

    def _of_all(self, values: Tensor) -> bool:
        return self.tasks == tuple(range(values.shape[0]))


@dataclass
class OwnLeaves:
    """The gradients of all tasks at their own leaves."""

    groups: list[LeafGroup]
    loose: list[LeafGradient]
    """(task, leaf, gradient) where the gradient is sparse, or several tasks reach the leaf."""
    leaves: list[list[Tensor]]
    """Per task: the leaves that a gradient has reached."""

    @classmethod
    def of(cls, pairs: Pairs) -> "OwnLeaves":
        """From the gradients as autograd returned them."""
        owners = Counter([id(leaf) for own in pairs for leaf, _ in own])
        alike: dict[Any, list[LeafGradient]] = {}
        loose = []
        for task, own in enumerate(pairs):
            for leaf, gradient in own:
                if gradient.is_sparse or owners[id(leaf)] > 1:
                    loose.append((task, leaf, gradient))
                else:
                    key = gradient.shape, gradient.dtype, gradient.device
                    alike.setdefault(key, []).append((task, leaf, gradient))
        groups = []
        for members in alike.values():
            tasks, leaves, gradients = zip(*members, strict=True)
            groups.append(LeafGroup(list(leaves), tasks, Stacked.of(gradients)))
        return cls(groups, loose, [[leaf for leaf, _ in own] for own in pairs])

    def added_to(self, total: Tensor) -> Tensor:
        """`total` [m] and the norms of the gradients; not finite where a gradient is not."""
        for group in self.groups:
            total = group.added_to(total)
        if self.loose:
            values = [gradient.coalesce().values() if gradient.is_sparse else gradient for _, _, gradient in self.loose]
            sizes = torch.stack([magnitude(entries).to(total.device) for entries in values])
            tasks = tuple(task for task, _, _ in self.loose)
            total = total.index_add(0, index_of(tasks, total.device), sizes)
        return total

    def zero_unless(self, ok: Tensor) -> None:
        """Set the gradients of the tasks that are not `ok` [m] to zero."""
        for group in self.groups:
            group.gradients.zero_unless(group.among(ok))
        # In copies: two leaves may have been given one and the same tensor.
        self.loose = [(task, leaf, zeroed_unless(ok[task], gradient)) for task, leaf, gradient in self.loose]

    def per_task(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Per task: (leaf, gradient)."""
        pairs: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self.leaves]
        for task, leaf, gradient in (*(part for group in self.groups for part in group.weighted(None)), *self.loose):
            pairs[task].append((leaf, gradient))
        return pairs

    def weighted_sum(self, weights: Tensor, own: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        """(leaf, gradient): `own` [m] (None: 1) times the gradient at a leaf of one task alone.

        A leaf that several tasks reach is shared in all but name: its gradient is the sum times `weights` [m]. Of one
        head for all tasks, an entry that one task alone moves is that task's own.
        """
        parts = [(leaf, gradient) for group in self.groups for _, leaf, gradient in group.weighted(own)]
        return [*parts, *self._loose_sum(weights, own)] if self.loose else parts

    def _loose_sum(self, weights: Tensor, own: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        common = self._moved_by_several() if own is None else {}
        own = torch.ones_like(weights) if own is None else own
        owners = Counter([id(leaf) for _, leaf, _ in self.loose])
        sums: dict[int, tuple[Tensor, Tensor]] = {}
        for task, leaf, gradient in reversed(self.loose):  # in the order of autograd, see `Stacked.weighted_sum`
            factor = own[task] if owners[id(leaf)] == 1 else weights[task]
            if id(leaf) in common:
                factor = torch.where(common[id(leaf)], weights[task], own[task])
            factor = factor.to(gradient.dtype)
            term = on_values(gradient, _times(factor)) if gradient.is_sparse else gradient * factor
            before = sums.get(id(leaf))
            sums[id(leaf)] = leaf, term if before is None else before[1] + term
        return list(sums.values())

    def _moved_by_several(self) -> dict[int, Tensor]:
        """Of the parameters of one head for all tasks, if there is one: the entries that several tasks move."""
        one_head = {id(leaf) for leaf in one_head_for_all(self.leaves)}
        moved: dict[int, list[Tensor]] = {}
        for _, leaf, gradient in self.loose:
            if id(leaf) in one_head:
                moved.setdefault(id(leaf), []).append(dense(gradient) != 0)
        return {key: torch.stack(entries).sum(0) > 1 for key, entries in moved.items()}

    @property
    def stored(self) -> list[Tensor]:
        """The tensors that the groups are made of."""
        return [group.gradients.flat for group in self.groups]

    @property
    def layout(self) -> Any:
        """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""
        return tuple(
            [
                (tuple(map(id, group.leaves)), group.tasks, group.gradients.shape, group.gradients.order)
                for group in self.groups
            ]
        )

    def with_stored(self, stored: Sequence[Tensor]) -> "OwnLeaves":
        """The same made of other tensors."""
        pairs = zip(self.groups, stored, strict=True)
        groups = [replace(group, gradients=replace(group.gradients, flat=flat)) for group, flat in pairs]
        return OwnLeaves(groups, [], self.leaves)


def by_task(leaves: Sequence[Sequence[Tensor]], gradients: Sequence[Tensor | None]) -> Pairs:
    """Leaves with their gradients, without those that no gradient reached."""
    remaining = iter(gradients)
    pairs = [[(leaf, next(remaining)) for leaf in own] for own in leaves]
    return [[(leaf, gradient) for leaf, gradient in own if gradient is not None] for own in pairs]


def _times(factor: Tensor) -> Any:
    return lambda entries: entries * factor
