"""What one (micro-)batch says about each task, with every bad task set aside.

Nothing here reads a device value: which tasks are finite is known as a tensor only.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from excessmtl.constants import made_once
from excessmtl.gradients.cut import Cut
from excessmtl.gradients.observation import Sample, Samples
from excessmtl.gradients.rows import as_real, is_finite, keep_where
from excessmtl.gradients.stacked import Stacked, by_task


@dataclass
class Gathered:
    """What one (micro-)batch says about each task. Gradients carry the loss scale of mixed precision."""

    values: Tensor
    """[m] fp32 losses as they came; zero where the task is missing."""
    labelled: Tensor
    """[m] bool: the task has labels in this batch."""
    finite: Tensor
    """[m] bool: neither the loss of the task nor a gradient of it is inf or NaN."""
    scale: Tensor | None
    """The loss scale of a GradScaler, or None."""
    masks: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    own_one_by_one: list[list[tuple[Tensor, Tensor]]]
    """Per task: (leaf, gradient) for the leaves outside `shared`, where they are not stacked."""
    one_by_one: list[list[tuple[Cut, Tensor]]]
    """Per task: gradients at the representation, where they are not stacked."""
    probed: Tensor | None
    """[m, n] gradients at the probed parameters side by side, as they came; None where nothing is probed."""
    parameters: Sequence[Tensor] = ()
    final: bool = False
    """Whether the probed gradients are all there is of the shared ones (the trunk is not walked again)."""
    stacked: Stacked | None = None
    """The gradients of `own` and at the representation in one, zero where not ok, where they can be."""
    reduced: Tensor | None = None
    """[m] what the rule made of each probed gradient before it was let go."""

    @cached_property
    def own(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Per task: (leaf, gradient) for the leaves outside `shared`."""
        if self.stacked is None:
            return self.own_one_by_one
        return by_task(self.stacked.owned(None, self.ok), len(self.masks))

    @cached_property
    def cuts(self) -> list[list[tuple[Cut, Tensor]]]:
        """Per task: gradients at the representation."""
        return self.one_by_one if self.stacked is None else self.stacked.cuts

    @cached_property
    def ok(self) -> Tensor:
        """[m] bool: the task takes part in this step."""
        ok = self.labelled & self.finite
        return ok if self.overflow is None else ok & ~self.overflow

    @cached_property
    def overflow(self) -> Tensor | None:
        """Whether the loss scale is to blame for a gradient that is not finite (None without a scaler).

        The scaler must then see it and lower the scale; setting the task aside would hide it for ever. At a
        scale of one or less the scale cannot be to blame, and the task is set aside like any other.
        """
        if self.scale is None:
            return None
        return (self.labelled & self.values.isfinite() & ~self.finite).any() & (self.scale > 1)

    @cached_property
    def matrix(self) -> Tensor | None:
        """`probed` (fp32 or wider) without the loss scale; zero rows where not ok."""
        if self.probed is None:
            return None
        keep_where(self.ok[:, None], self.probed)
        return self.probed if self.scale is None else self.probed / self.scale

    @cached_property
    def rows(self) -> tuple[Tensor, ...]:
        """The same parameter by parameter."""
        return () if self.matrix is None else beside(self.matrix, self.parameters)

    @cached_property
    def cut_rows(self) -> tuple[Tensor, ...]:
        """The same at the representation: one matrix per distinct cut."""
        if self.stacked is not None:
            rows = self.stacked.at_cut.tensors.flatten(1)
            return (rows if rows.dtype == torch.float64 else rows.float(),)
        cuts = {id(cut): cut for task in self.cuts for cut, _ in task}
        found = [{id(cut): gradient for cut, gradient in task} for task in self.cuts]
        return tuple(self._rows(cut.size, [task.get(key) for task in found]) for key, cut in cuts.items())

    def samples(self, task: int, batch: int = 0) -> list[Sample]:
        """What the representation says about one task, without the loss scale."""
        found = []
        for cut, gradient in self.cuts[task]:
            dz = gradient.float() if self.stacked is not None else torch.where(self.ok[task], gradient.float(), 0)
            dz = dz if self.scale is None else dz / self.scale
            found.append(Sample(cut.values, dz, self.masks[task], batch))
        return found

    def samples_of_all(self) -> Samples | None:
        """The same for all tasks in one, where they see the same tensor."""
        if self.stacked is None:
            return None
        return Samples(self.stacked.cut.values, self.stacked.at_cut, self.masks, self.stacked.there)

    def without_graph(self) -> "Gathered":
        """The same statistics of a batch that has been written, holding on to no autograd graph."""
        # One for all tasks that share it: products between tasks are taken cut by cut.
        values = {id(cut): cut.without_graph() for task in self.one_by_one for cut, _ in task}
        cuts = [[(values[id(cut)], dz) for cut, dz in task] for task in self.one_by_one]
        together = None if self.stacked is None else self.stacked.without_graph()
        return replace(self, one_by_one=cuts, own_one_by_one=[[] for _ in cuts], final=False, stacked=together)

    def without_representation(self) -> "Gathered":
        """The same with nothing of the representation, whose gradients are the largest there are as a rule."""
        return replace(self, one_by_one=[[] for _ in self.masks], own_one_by_one=self.own, stacked=None)

    def without_heads(self) -> "Gathered":
        """The same statistics at the losses and at the probed parameters, and nothing that could be written."""
        cuts: list[list[tuple[Cut, Tensor]]] = [[] for _ in self.masks]
        return replace(self, one_by_one=cuts, own_one_by_one=[[] for _ in cuts], final=False, stacked=None)

    def _rows(self, size: int, gradients: list[Tensor | None]) -> Tensor:
        dtypes = {g.dtype for g in gradients if g is not None}
        zero = self.values.new_zeros(size, dtype=torch.float64 if torch.float64 in dtypes else torch.float32)
        rows = torch.stack([zero if g is None else g.to_dense().reshape(-1).to(zero.dtype) for g in gradients])
        rows = torch.where(self.ok[:, None], rows, 0)
        return rows if self.scale is None else rows / self.scale


def without_gradients(
    losses: Sequence[Tensor | None], masks: Sequence[Tensor | None], scale: Tensor | None
) -> Gathered:
    """The losses alone, for steps that take one backward for all tasks."""
    values = loss_values(losses)
    labelled = has_labels([loss is not None for loss in losses], masks, values.device)
    nothing: list[list[tuple[Tensor, Tensor]]] = [[] for _ in losses]
    no_cuts: list[list[tuple[Cut, Tensor]]] = [[] for _ in losses]
    return Gathered(values, labelled, is_finite(values), scale, masks, nothing, no_cuts, None)


def beside(matrix: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The columns of each parameter in a matrix, or the entries in a vector, that has them side by side."""
    return tuple(torch.split(matrix, [parameter.numel() for parameter in parameters], dim=-1))


def loss_values(losses: Sequence[Tensor | None]) -> Tensor:
    """[m] fp32 values, zero where there is no loss."""
    with torch.no_grad():
        return loss_vector(losses).float()


def loss_vector(losses: Sequence[Tensor | None]) -> Tensor:
    """[m] all losses in one tensor, zero where there is none."""
    given = [loss for loss in losses if loss is not None]
    if len(given) < len(losses):
        zero = torch.zeros_like(given[0])
        given = [zero if loss is None else loss for loss in losses]
    return torch.stack([loss if loss.ndim == 0 else loss.reshape(()) for loss in given])


def has_labels(there: Sequence[bool], masks: Sequence[Tensor | None], device: torch.device) -> Tensor:
    """[m] bool: a loss was given (`there`) and, where there is a mask, it lets a sample through."""
    given = _flags(tuple(there), device)
    if all(mask is None for mask in masks):
        return given
    true = torch.ones((), dtype=torch.bool, device=device)
    return given & torch.stack([true if mask is None else mask.to(device).any() for mask in masks])


@made_once
def _flags(values: tuple[bool, ...], device: torch.device) -> Tensor:
    # Kept, because a copy from the host in every step is one that a CUDA graph cannot record.
    return torch.tensor(values, device="cpu").to(device)


def all_finite(gradients: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """Whether no gradient has an entry that is inf or NaN, as a tensor."""
    # A sum is finite if and only if every entry is (or the entries are beyond any use): one pass, no mask.
    dense = [g.coalesce().values() if g.is_sparse else g for g in gradients if g is not None]
    sums = [as_real(gradient).sum(dtype=torch.float32) for gradient in dense]
    return torch.stack(sums).sum().isfinite() if sums else like.new_ones((), dtype=torch.bool)


def exact(like: Tensor) -> AbstractContextManager[Any]:
    """Without autocast: statistics must not be rounded to the precision the model computes in."""
    device = like.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
