"""The gradients of every task in one (micro-)batch: what is usable, what rules look at, and the weighted sum.

Nothing here reads a device value: which tasks are usable is known as a tensor only.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from excessmtl.gradients.at_representation import LeafGradient, LeafGroup
from excessmtl.gradients.linear_heads import AtRepresentation
from excessmtl.graph.nodes import one_head_for_all
from excessmtl.graph.representation import Representation
from excessmtl.tensors import (
    added_at,
    among,
    dense,
    flags,
    index_of,
    is_finite,
    magnitude,
    split_by_parameter,
    stored_entries,
    times,
    usable,
    zero_unless,
    zeroed_unless,
)

Contribution = tuple[Tensor | Representation, Tensor]
"""A leaf or a representation, and the gradient that enters there."""
Gates = Sequence[Sequence[Tensor]]
"""Per task and representation: a multiplier for every entry."""


@dataclass(frozen=True)
class Sample:
    """One tensor of the representation as one task sees it: values, gradient, which samples carry a label."""

    z: Tensor
    dz: Tensor
    labelled: Tensor | None = None
    batch: int = 0
    """Which micro-batch it belongs to; several tensors of one micro-batch describe the same samples."""


@dataclass(frozen=True)
class Samples:
    """One tensor of the representation as all tasks see it."""

    z: Tensor
    gradients: AtRepresentation
    """Zero where a task is not ok."""
    labelled: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    present: Sequence[bool]
    """Whether a loss was given for the task."""


@dataclass
class TaskGradients:
    """The losses of one (micro-)batch and their gradients, which carry the loss scale of mixed precision."""

    losses: Sequence[Tensor | None]
    """None where a task is missing."""
    masks: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    scale: Tensor | None
    """The loss scale of a GradScaler, or None."""
    at_z: Sequence[AtRepresentation] = ()
    """At each tensor of the representation."""
    at_leaves: Sequence[LeafGradient] = ()
    """At leaves outside `shared`, one by one; but those whose gradients follow from the ones at z."""
    groups: Sequence[LeafGroup] = ()
    """The same for leaves of one task each, those of one shape together."""
    at_parameters: Tensor | None = None
    """[m, n] at the shared parameters that are looked at, side by side."""
    parameters: Sequence[Tensor] = ()
    """These parameters."""
    complete: bool = False
    """Whether `at_parameters` is all that the shared parameters get: the trunk needs no further backward pass."""
    headless: bool = False
    """Whether no task has parameters of its own."""
    usable_tasks: Tensor | None = None
    """[m] which tasks are usable, where the gradients that tell have been dropped."""
    _zeroed: bool = field(default=False, repr=False)

    @cached_property
    def present(self) -> tuple[bool, ...]:
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
        return all(self.present) and all(mask is None for mask in self.masks)

    @cached_property
    def labelled(self) -> Tensor:
        """[m] bool: a loss was given and, where there is a mask, it lets a sample through."""
        device = self.values.device
        present = flags(self.present, device)
        if self.all_labelled or all(mask is None for mask in self.masks):
            return present
        masks = [torch.ones(1, dtype=torch.bool, device=device) if mask is None else mask for mask in self.masks]
        if len({mask.shape for mask in masks}) == 1:
            return present & torch.stack([mask.to(device) for mask in masks]).any(1)
        return present & torch.stack([mask.to(device).any() for mask in masks])

    @cached_property
    def finite(self) -> Tensor:
        """[m] bool: the loss and all gradients of the task can be worked with."""
        if self.usable_tasks is not None:
            return self.usable_tasks
        sizes = self.values.abs()
        for group in self.groups:
            sizes = added_at(sizes, group.tasks, group.magnitudes())
        if self.at_leaves:
            norms = [magnitude(stored_entries(gradient)).to(sizes.device) for _, _, gradient in self.at_leaves]
            sizes = added_at(sizes, tuple([task for task, _, _ in self.at_leaves]), torch.stack(norms))
        for part in self.at_z:
            sizes = added_at(sizes, part.tasks, part.magnitudes())
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
    def skipped(self) -> Tensor:
        """[m] bool: labelled, and yet without a part in this step because something about the task is not finite."""
        skipped = ~self.ok if self.all_labelled else self.labelled ^ self.ok  # who is ok is labelled
        if self.overflow is None:
            return skipped
        return skipped & (~self.overflow | ~is_finite(self.values))  # not the task's fault, unless its loss is bad

    def _zero(self) -> None:
        """Set everything of the tasks without a part in this step to zero, once."""
        if self._zeroed:
            return
        self._zeroed = True
        for part in self.at_z:
            part.zero_unless(among(self.ok, part.tasks))
        for group in self.groups:
            group.zero_unless(among(self.ok, group.tasks))
        # In copies: two leaves may have been given one and the same tensor.
        self.at_leaves = [(task, leaf, zeroed_unless(self.ok[task], g)) for task, leaf, g in self.at_leaves]
        if self.at_parameters is not None:
            zero_unless(self.ok[:, None], self.at_parameters)

    def _unscaled(self, values: Tensor) -> Tensor:
        return values if self.scale is None else values / self.scale

    # ------------------------------------------------------------------ what rules look at

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
        return tuple(self._unscaled(self._rows(part)) for part in self.at_z)

    def _rows(self, part: AtRepresentation) -> Tensor:
        rows = part.tensors.flatten(1)
        rows = rows if rows.dtype == torch.float64 else rows.float()
        if len(part.tasks) == len(self.losses):
            return rows
        return rows.new_zeros(len(self.losses), rows.shape[1]).index_copy(0, index_of(part.tasks, rows.device), rows)

    def samples(self, task: int, batch: int = 0) -> list[Sample]:
        """What one task shows at the representation, without the loss scale."""
        self._zero()
        if not self.present[task]:
            return []
        parts = [(part, part.tasks.index(task)) for part in self.at_z if task in part.tasks]
        return [
            Sample(part.representation.values, self._unscaled(part.of_task(place).float()), self.masks[task], batch)
            for part, place in parts
        ]

    def samples_of_all(self) -> Samples | None:
        """The same for all tasks in one, where they see one tensor and there is no loss scale."""
        self._zero()
        if self.scale is not None or len(self.at_z) != 1 or len(self.at_z[0].tasks) < len(self.losses):
            return None
        return Samples(self.at_z[0].representation.values, self.at_z[0], self.masks, self.present)

    def own(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Per task: (leaf, gradient) for the leaves outside `shared`, with the loss scale; zero where not ok."""
        self._zero()
        grouped = [gradient for group in self.groups for gradient in group.weighted(None)]
        at_layers = [gradient for part in self.at_z for gradient in part.own_gradients()]
        pairs: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self.losses]
        for task, leaf, gradient in (*grouped, *self.at_leaves, *at_layers):
            pairs[task].append((leaf, gradient))
        return pairs

    # ------------------------------------------------------------------ what is made of them

    def weighted_sum(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution]:
        """The combined gradient: `weights` (or `gates`) on what is shared, `own` (None: 1) on what is a task's own."""
        self._zero()
        parts = self._combined(weights, own, gates)
        if self.overflow is not None:
            poison = torch.where(self.overflow, torch.nan, 1.0)
            parts = [(target, gradient * poison.to(gradient.dtype)) for target, gradient in parts]
        return parts

    def _combined(self, weights: Tensor, own: Tensor | None, gates: Gates | None) -> list[Contribution]:
        parts: list[Contribution] = [
            (leaf, gradient) for group in self.groups for _, leaf, gradient in group.weighted(own)
        ]
        if self.at_leaves:
            parts += self._sums_at_leaves(weights, own)
        seen = [0] * len(self.losses)
        for part in self.at_z:
            parts += [(leaf, gradient) for _, leaf, gradient in part.leaf_gradients(own)]
            if self.complete:  # the trunk has been passed
                continue
            if gates is None:
                combined = part.weighted_sum(among(weights, part.tasks))
            else:
                gated = []
                for place, task in enumerate(part.tasks):
                    if self.present[task]:
                        gradient = part.of_task(place)
                        gated.append(gradient * gates[task][seen[task]].to(gradient.dtype))
                        seen[task] += 1
                combined = torch.stack(gated).sum(0)
            parts.append((part.representation, combined))
        if self.complete and self.at_parameters is not None:
            combined = weights.to(self.at_parameters.dtype) @ self.at_parameters
            for parameter, gradient in zip(self.parameters, split_by_parameter(combined, self.parameters), strict=True):
                parts.append((parameter, gradient.view(parameter.shape).to(parameter.dtype)))
        return parts

    def _sums_at_leaves(self, weights: Tensor, own: Tensor | None) -> list[Contribution]:
        """`own` [m] (None: 1) times the gradient at a leaf of one task alone.

        A leaf that several tasks reach is shared in all but name: its gradient is the sum times `weights` [m]. Of one
        head for all tasks, an entry that one task alone moves is that task's own.
        """
        owners = Counter([id(leaf) for _, leaf, _ in self.at_leaves])
        common = self._moved_by_several() if own is None and len(owners) < len(self.at_leaves) else {}
        own = torch.ones_like(weights) if own is None else own
        sums: dict[int, tuple[Tensor, Tensor]] = {}
        for task, leaf, gradient in reversed(self.at_leaves):  # in the order of autograd, see `weighted_sum`
            factor = own[task] if owners[id(leaf)] == 1 else weights[task]
            if id(leaf) in common:
                factor = torch.where(common[id(leaf)], weights[task], own[task])
            term = times(gradient, factor.to(gradient.dtype))
            before = sums.get(id(leaf))
            sums[id(leaf)] = leaf, term if before is None else before[1] + term
        return list(sums.values())

    def _moved_by_several(self) -> dict[int, Tensor]:
        """Of the parameters of one head for all tasks, if there is one: the entries that several tasks move."""
        one_head = {id(leaf) for leaf in one_head_for_all([[leaf for leaf, _ in own] for own in self.own()])}
        moved: dict[int, list[Tensor]] = {}
        for _, leaf, gradient in self.at_leaves:
            if id(leaf) in one_head:
                moved.setdefault(id(leaf), []).append(dense(gradient) != 0)
        return {key: torch.stack(entries).sum(0) > 1 for key, entries in moved.items()}

    # ------------------------------------------------------------------ micro-batches that wait for the last one

    def waiting(self, held_back: bool, looked_at: bool) -> "TaskGradients":
        """The losses without the autograd graph, which tasks are usable, and no more gradients than are needed.

        `held_back`: those at leaves, to be weighted later. `looked_at`: those at the representation, as rules see them.
        """
        self._zero()
        at_z = [part.without_graph() for part in self.at_z] if looked_at else []
        at_leaves = [(task, *pair) for task, own in enumerate(self.own()) for pair in own] if held_back else []
        pairs = zip(self.values.unbind(), self.present, strict=True)
        losses = [value if present else None for value, present in pairs]
        return replace(self, losses=losses, at_z=at_z, at_leaves=at_leaves, groups=(), usable_tasks=self.finite)
