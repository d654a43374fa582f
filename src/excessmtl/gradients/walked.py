"""What autograd found in one batch, before anything is made of it: tensors, and whom they belong to.

Here the walk through the graph ends and arithmetic begins. The arithmetic sees nothing but these tensors, so it can be
done for others in their place: that is how it is recorded.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.gathered import Gathered, all_finite, exact, has_labels, loss_values
from excessmtl.gradients.heads import Pair
from excessmtl.gradients.linear import AtOutputs, Layers
from excessmtl.gradients.maps import Maps
from excessmtl.gradients.products import Products
from excessmtl.gradients.rows import Rows, finite_rows, is_finite
from excessmtl.gradients.stacked import by_task, stacked


@dataclass(frozen=True)
class Walked:
    """The losses of one batch and their gradients, where the heads were walked together."""

    losses: Sequence[Tensor | None]
    """Per task; None where it is missing."""
    masks: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    cut: Cut
    at_cut: Rows | Maps | AtOutputs
    """The gradients at the cut."""
    own: list[list[Pair]]
    """Per task: the leaves whose gradients `at_cut` does not tell, with theirs."""
    probed: Tensor | None = None
    """[m, n] gradients at the shared parameters side by side, where the trunk was walked for every task."""
    parameters: Sequence[Tensor] = ()

    @property
    def there(self) -> tuple[bool, ...]:
        """Whether a loss was given for the task."""
        return tuple([loss is not None for loss in self.losses])

    @property
    def sparse(self) -> bool:
        """Whether a gradient is."""
        return any(gradient.is_sparse for task in self.own for _, gradient in task)

    @property
    def kind(self) -> Hashable:
        """Beside what the tensors look like: equal for batches that ask for the same arithmetic."""
        leaves = tuple([tuple([id(leaf) for leaf, _ in task]) for task in self.own])
        masked = tuple([mask is not None for mask in self.masks])
        return self.there, masked, self.at_cut.kind, leaves, tuple(map(id, self.parameters))

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All tensors, in the order in which `on` takes others."""
        return [
            *(loss for loss in self.losses if loss is not None),
            self.cut.stored,
            *self.at_cut.factors,
            *(gradient for task in self.own for _, gradient in task),
            *(mask for mask in self.masks if mask is not None),
            *(() if self.probed is None else (self.probed,)),
        ]

    def on(self, tensors: Sequence[Tensor]) -> "Walked":
        """The same with other tensors, and nothing that could be walked."""
        remaining = iter(tensors)
        losses = [None if loss is None else next(remaining) for loss in self.losses]
        z = next(remaining)
        return replace(
            self,
            losses=losses,
            cut=self.cut.forgotten(z),
            at_cut=self.at_cut.on(z, remaining),
            own=[[(leaf, next(remaining)) for leaf, _ in task] for task in self.own],
            masks=[None if mask is None else next(remaining) for mask in self.masks],
            probed=None if self.probed is None else next(remaining),
        )

    def gathered(self) -> Gathered:
        """What the batch says about each task, with every bad task set aside. Changes the gradients in place."""
        values = loss_values(self.losses)
        final = self.probed is not None
        cut = self.cut.forgotten() if final else self.cut
        at_cut: Rows | Maps | Products
        at_cut, own = self.at_cut.joined(), self.own
        if final and isinstance(at_cut, Layers):  # gradients may wait for the last micro-batch, values of z may not
            at_cut, own = _multiplied_out(at_cut, own)
        together = stacked(cut, at_cut, self.there, own)
        one_by_one: list[list[tuple[Cut, Tensor]]] = [[] for _ in own]
        if together is not None:
            finite = is_finite(together.sums() + values)
        else:
            if isinstance(at_cut, Layers):
                at_cut, own = _multiplied_out(at_cut, own)
            pairs = zip(at_cut.tensors.unbind(), self.there, strict=True)
            one_by_one = [[(cut, dz)] if given else [] for dz, given in pairs]
            reached = [[*at_z, *leaves] for at_z, leaves in zip(one_by_one, own, strict=True)]
            finite = torch.stack([all_finite([gradient for _, gradient in task], values) for task in reached])
            finite = finite & is_finite(values)
        if self.probed is not None:
            finite = finite & finite_rows(self.probed)
            one_by_one = [[] for _ in own]  # what has been walked to the end is not sent down again
        found = Gathered(
            values,
            has_labels(self.there, self.masks, values.device),
            finite,
            None,
            self.masks,
            own,
            one_by_one,
            self.probed,
            self.parameters,
            final=final,
            stacked=together,
        )
        if together is not None:
            together.zero_unless(found.ok)
        return found


def _multiplied_out(layers: Layers, own: list[list[Pair]]) -> tuple[Products, list[list[Pair]]]:
    """The same with the gradients of the layers' leaves among the tasks' `own`."""
    with exact(layers.left):
        more = by_task(layers.owned(None, None), len(own))
    return layers.alone(), [[*first, *rest] for first, rest in zip(more, own, strict=True)]
