"""The gradients of every task in one (micro-)batch: what is usable, what rules look at, and the weighted sum.

Nothing here reads a device value: which tasks are usable is known as a tensor only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from excessmtl.engine.graph import one_head_for_all
from excessmtl.engine.observation import Sample, Samples
from excessmtl.engine.representation import Representation
from excessmtl.engine.tensors import (
    dense,
    flags,
    is_finite,
    magnitude,
    on_values,
    split_by_parameter,
    usable,
    zero_unless,
    zeroed_unless,
)

Contribution = tuple[Tensor | Representation, Tensor]
"""A leaf or a representation, and the gradient that enters there."""
Gates = Sequence[Sequence[Tensor]]
"""Per task and representation: a multiplier for every entry."""


class HeadGradients(Protocol):
    """The gradients of all tasks above the shared parameters: at the representation and at leaves of the tasks' own."""

    def magnitudes(self) -> Tensor:
        """[m] fp32; not finite where a gradient of the task is not."""

    def zero_unless(self, ok: Tensor) -> None:
        """Set everything of the tasks that are not `ok` [m] to zero."""

    def rows(self) -> tuple[Tensor, ...]:
        """The gradients at the representation: one [m, n] matrix for each of its tensors."""

    def samples(self, task: int) -> list[tuple[Tensor, Tensor]]:
        """The values of the representation and one task's gradient there, for each of its tensors."""

    def samples_of_all(self, masks: Sequence[Tensor | None]) -> Samples | None:
        """The same for all tasks in one, where they see one and the same tensor."""

    def without_representation(self) -> None:
        """Drop the gradients at the representation from what `weighted_sum` returns: the trunk has been passed."""

    def own(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Per task: (leaf, gradient) for the leaves outside `shared`."""

    def weighted_sum(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution] | None:
        """The combined gradient: `weights` at the representation, `own` (None: 1) at the tasks' own leaves.

        A leaf outside `shared` that several tasks reach is shared in all but name: it gets `weights`. Of one
        head for all tasks, an entry that one task alone moves is that task's own. None where a task turned out to be
        unusable, and it is not known which.
        """

    def statistics(self) -> "HeadGradients":
        """What rules look at, without the autograd graph."""


@dataclass
class PerTask:
    """The gradients above the shared parameters as they come: a list for each task."""

    device: torch.device
    at_representation: list[list[tuple[Representation, Tensor]]]
    at_leaves: list[list[tuple[Tensor, Tensor]]]

    @classmethod
    def nothing(cls, tasks: int, device: torch.device) -> "PerTask":
        """No gradient at all."""
        return cls(device, [[] for _ in range(tasks)], [[] for _ in range(tasks)])

    def magnitudes(self) -> Tensor:
        """[m] fp32; not finite where a gradient of the task is not."""
        pairs = zip(self.at_representation, self.at_leaves, strict=True)
        return torch.stack([self._magnitude([*upper, *lower]) for upper, lower in pairs])

    def _magnitude(self, found: Sequence[tuple[Any, Tensor]]) -> Tensor:
        values = [gradient.coalesce().values() if gradient.is_sparse else gradient for _, gradient in found]
        sizes = [magnitude(one).to(self.device) for one in values]
        return torch.stack(sizes).sum() if sizes else torch.zeros((), dtype=torch.float32, device=self.device)

    def zero_unless(self, ok: Tensor) -> None:
        """Set everything of the tasks that are not `ok` [m] to zero, in copies: the memory may be somebody else's."""
        for task in range(len(ok)):
            for pairs in (self.at_representation[task], self.at_leaves[task]):
                pairs[:] = [(target, zeroed_unless(ok[task], gradient)) for target, gradient in pairs]  # type: ignore

    def rows(self) -> tuple[Tensor, ...]:
        """The gradients at the representation: one [m, n] matrix for each of its tensors."""
        distinct = {id(one): one for task in self.at_representation for one, _ in task}
        found = [{id(one): gradient for one, gradient in task} for task in self.at_representation]
        return tuple(_rows([task.get(key) for task in found], one.stored) for key, one in distinct.items())

    def samples(self, task: int) -> list[tuple[Tensor, Tensor]]:
        """The values of the representation and one task's gradient there, for each of its tensors."""
        return [(one.values, gradient.float()) for one, gradient in self.at_representation[task]]

    def samples_of_all(self, masks: Sequence[Tensor | None]) -> Samples | None:
        """None: tasks are looked at one by one."""
        return None

    def without_representation(self) -> None:
        """Drop the gradients at the representation."""
        self.at_representation = [[] for _ in self.at_representation]

    def own(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Per task: (leaf, gradient) for the leaves outside `shared`."""
        return self.at_leaves

    def weighted_sum(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution]:
        """The combined gradient: `weights` (or `gates`) at the representation, `own` (None: 1) at leaves."""
        entries = self._moved_by_several() if own is None else {}
        own = torch.ones_like(weights) if own is None else own
        owners: dict[int, int] = {}
        for pairs in self.at_leaves:
            for leaf, _ in pairs:
                owners[id(leaf)] = owners.get(id(leaf), 0) + 1
        sums: dict[int, list[Any]] = {}
        # The last task first, as autograd does where heads are computed in task order: `uniform` is then the sum of the
        # losses to the bit.
        for task in reversed(range(len(weights))):
            for place, (one, gradient) in enumerate(self.at_representation[task]):
                _add(sums, one, gradient, weights[task] if gates is None else gates[task][place])
            for leaf, gradient in self.at_leaves[task]:
                multiplier = own[task] if owners[id(leaf)] == 1 else weights[task]
                if id(leaf) in entries:
                    multiplier = torch.where(entries[id(leaf)], weights[task], own[task])
                _add(sums, leaf, gradient, multiplier)
        return [(target, gradient) for target, gradient in sums.values()]

    def _moved_by_several(self) -> dict[int, Tensor]:
        """Of the parameters of one head for all tasks, if there is one: the entries that several tasks move."""
        leaves = [[leaf for leaf, _ in pairs] for pairs in self.at_leaves]
        moved: dict[int, list[Tensor]] = {id(leaf): [] for leaf in one_head_for_all(leaves)}
        for pairs in self.at_leaves if moved else ():
            for leaf, gradient in pairs:
                if id(leaf) in moved:
                    moved[id(leaf)].append(dense(gradient) != 0)
        return {key: torch.stack(entries).sum(0) > 1 for key, entries in moved.items()}

    def statistics(self) -> "PerTask":
        """What rules look at, without the autograd graph."""
        kept = {id(one): one.without_graph() for task in self.at_representation for one, _ in task}
        pairs = [[(kept[id(one)], gradient) for one, gradient in task] for task in self.at_representation]
        return PerTask(self.device, pairs, [[] for _ in pairs])


def _rows(gradients: Sequence[Tensor | None], like: Tensor) -> Tensor:
    wide = torch.float64 if any(g is not None and g.dtype == torch.float64 for g in gradients) else torch.float32
    zero = torch.zeros(like.numel(), dtype=wide, device=like.device)
    return torch.stack([zero if g is None else dense(g).reshape(-1).to(wide) for g in gradients])


def _add(sums: dict[int, list[Any]], target: Tensor | Representation, gradient: Tensor, multiplier: Tensor) -> None:
    multiplier = multiplier.to(gradient.dtype)
    slot = sums.setdefault(id(target), [target, None])
    if gradient.is_sparse:
        gradient = on_values(gradient, lambda entries: entries * multiplier)
        slot[1] = gradient if slot[1] is None else slot[1] + gradient
    elif slot[1] is None or slot[1].is_sparse:
        slot[1] = gradient * multiplier if slot[1] is None else slot[1] + gradient * multiplier
    else:
        slot[1].addcmul_(gradient, multiplier)


@dataclass
class TaskGradients:
    """The losses of one (micro-)batch and their gradients, which carry the loss scale of mixed precision."""

    losses: Sequence[Tensor | None]
    """None where a task is missing."""
    masks: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    scale: Tensor | None
    """The loss scale of a GradScaler, or None."""
    heads: HeadGradients
    at_parameters: Tensor | None = None
    """[m, n] the gradients at the shared parameters that are looked at, side by side, as they came."""
    parameters: Sequence[Tensor] = ()
    """These parameters."""
    complete: bool = False
    """Whether `at_parameters` is all that the shared parameters get: the trunk needs no further backward pass."""
    reduced: Tensor | None = None
    """[m] what the rule made of each gradient at the shared parameters, where these were not kept."""
    known: Tensor | None = None
    """[m] which tasks are usable, where that is known already."""
    headless: bool = False
    """Whether no task has parameters of its own."""
    _zeroed: bool = field(default=False, repr=False)

    @cached_property
    def there(self) -> tuple[bool, ...]:
        """Whether a loss was given for the task."""
        return tuple([loss is not None for loss in self.losses])

    @cached_property
    def values(self) -> Tensor:
        """[m] fp32 losses; zero where the task is missing."""
        given = [loss for loss in self.losses if loss is not None]
        with torch.no_grad():
            if len(given) < len(self.losses):
                zero = torch.zeros_like(given[0])
                given = [loss if isinstance(loss, Tensor) else zero for loss in self.losses]
            return torch.stack([loss if loss.ndim == 0 else loss.reshape(()) for loss in given]).float()

    @cached_property
    def all_labelled(self) -> bool:
        """Whether a loss was given for every task, without a mask."""
        return all(self.there) and all(mask is None for mask in self.masks)

    @cached_property
    def labelled(self) -> Tensor:
        """[m] bool: a loss was given and, where there is a mask, it lets a sample through."""
        device = self.values.device
        there = flags(self.there, device)
        if self.all_labelled or all(mask is None for mask in self.masks):
            return there
        true = torch.ones((), dtype=torch.bool, device=device)
        return there & torch.stack([true if mask is None else mask.to(device).any() for mask in self.masks])

    @cached_property
    def finite(self) -> Tensor:
        """[m] bool: the loss and all gradients of the task can be worked with."""
        if self.known is not None:
            return self.known
        sizes = self.heads.magnitudes() + self.values.abs()
        finite = usable(sizes)
        return finite if self.at_parameters is None else finite & usable(magnitude(self.at_parameters, dim=1))

    @cached_property
    def overflow(self) -> Tensor | None:
        """Whether the loss scale is to blame for a gradient that is not finite (None without a scaler).

        The scaler must then see it and lower the scale; leaving the task out would hide it for ever. At a scale of one
        or less the scale cannot be to blame, and the task is left out like any other.
        """
        if self.scale is None:
            return None
        return (self.labelled & is_finite(self.values) & ~self.finite).any() & (self.scale > 1)

    @cached_property
    def ok(self) -> Tensor:
        """[m] bool: the task takes part in this step."""
        ok = self.finite if self.all_labelled else self.labelled & self.finite
        return ok if self.overflow is None else ok & ~self.overflow

    @cached_property
    def left_out(self) -> Tensor:
        """[m] bool: labelled, and yet without a part in this step because something about the task is not finite."""
        left_out = ~self.ok if self.all_labelled else self.labelled ^ self.ok  # who is ok is labelled
        if self.overflow is None:
            return left_out
        return left_out & (~self.overflow | ~is_finite(self.values))  # not the task's fault, unless its loss is bad

    def _zero(self) -> None:
        """Set everything of the tasks without a part in this step to zero, once."""
        if self._zeroed:
            return
        self._zeroed = True
        self.heads.zero_unless(self.ok)
        if self.at_parameters is not None:
            zero_unless(self.ok[:, None], self.at_parameters)

    def _unscaled(self, values: Tensor) -> Tensor:
        return values if self.scale is None else values / self.scale

    @cached_property
    def matrix(self) -> Tensor | None:
        """[m, n] the gradients at parameters without the loss scale; zero rows where not ok."""
        self._zero()
        return None if self.at_parameters is None else self._unscaled(self.at_parameters)

    @cached_property
    def rows_at_parameters(self) -> tuple[Tensor, ...]:
        """The same parameter by parameter."""
        return () if self.matrix is None else split_by_parameter(self.matrix, self.parameters)

    def matrix_of(self, wanted: Sequence[Tensor]) -> Tensor:
        """[m, n] the same for these parameters alone. A graph with a skip connection may have needed more of them."""
        assert self.matrix is not None
        if list(map(id, wanted)) == list(map(id, self.parameters)):
            return self.matrix
        rows = dict(zip(map(id, self.parameters), self.rows_at_parameters, strict=True))
        return torch.cat([rows[id(parameter)] for parameter in wanted], dim=1)

    def rows_at_representation(self) -> tuple[Tensor, ...]:
        """One [m, n] matrix for each tensor of the representation, without the loss scale; zero rows where not ok."""
        self._zero()
        return tuple(self._unscaled(rows) for rows in self.heads.rows())

    def samples(self, task: int, batch: int = 0) -> list[Sample]:
        """What one task shows at the representation, without the loss scale."""
        self._zero()
        return [Sample(z, self._unscaled(dz), self.masks[task], batch) for z, dz in self.heads.samples(task)]

    def samples_of_all(self) -> Samples | None:
        """The same for all tasks in one, where they see one tensor and there is no loss scale."""
        self._zero()
        return None if self.scale is not None else self.heads.samples_of_all(self.masks)

    def own(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Per task: (leaf, gradient) for the leaves outside `shared`, with the loss scale; zero where not ok."""
        self._zero()
        return self.heads.own()

    def weighted_sum(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution] | None:
        """The combined gradient: `weights` on what is shared, `own` (None: 1) on what is a task's own.

        None where a task turned out to be unusable, and it is not known which.
        """
        self._zero()
        parts = self.heads.weighted_sum(weights, own, gates)
        if parts is None:
            return None
        if self.complete and self.at_parameters is not None:
            combined = weights.to(self.at_parameters.dtype) @ self.at_parameters
            for parameter, part in zip(self.parameters, split_by_parameter(combined, self.parameters), strict=True):
                parts.append((parameter, part.view(parameter.shape).to(parameter.dtype)))
        if self.overflow is not None:
            poison = torch.where(self.overflow, torch.nan, 1.0)
            parts = [(target, gradient * poison.to(gradient.dtype)) for target, gradient in parts]
        return parts

    def only(self, heads: HeadGradients) -> "TaskGradients":
        """The same batch with less of the gradients above the shared parameters, to be kept for a while."""
        self._zero()
        losses = [one if there else None for one, there in zip(self.values.unbind(), self.there, strict=True)]
        return replace(self, losses=losses, heads=heads, known=self.finite)
