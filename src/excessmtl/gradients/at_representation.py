"""Dense gradients: those of tasks at one tensor z of the representation, and those at leaves of one shape."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Reach
from excessmtl.graph.representation import Representation, nothing_below
from excessmtl.tensors import among, dense, magnitude, zero_unless, zeroed_unless
from excessmtl.torch_private import gradients_from, hooks_disabled

LeafGradient = tuple[int, Tensor, Tensor]
"""A task, a leaf, and the gradient of the task there."""


@dataclass
class Rows:
    """Dense gradients of k tasks at z: as they arrived, or copies of them side by side."""

    representation: Representation
    tasks: tuple[int, ...]
    """Whose gradients these are."""
    gradients: list[Tensor]
    """One for each of these tasks. Not ours, unless they lie side by side: somebody else may hold them too."""
    together: Tensor | None = None
    """[k, ...]: copies side by side, where somebody is going to look at all of them at once."""
    arrived: set[int] = field(default_factory=set)
    """The tasks for which something arrived; zero for the others."""

    @staticmethod
    def awaited(representation: Representation, tasks: Sequence[int], inputs: StepInputs) -> "Rows":
        """Zeros, until something arrives."""
        z = representation.stored
        one_by_one = inputs.probe is Probe.LOSSES or (inputs.per_sample and z.ndim != 2)
        together = None if one_by_one else z.new_zeros((len(tasks), *z.shape), requires_grad=False)
        zeros = [z.new_zeros(()).expand(z.shape)] * len(tasks) if together is None else [*together.unbind()]
        return Rows(representation, tuple(tasks), zeros, together)

    def add(self, task: int, gradient: Tensor) -> None:
        """A gradient that arrives for a task, beside what has arrived before."""
        place = self.tasks.index(task)
        if self.together is not None:
            self.gradients[place].add_(gradient)
        else:
            self.gradients[place] = self.gradients[place] + gradient if task in self.arrived else gradient
        self.arrived.add(task)

    @property
    def stored(self) -> list[Tensor]:
        """The tensors it is made of, apart from z: a CUDA graph replaces them by others."""
        return self.gradients if self.together is None else [self.together]

    @property
    def layout(self) -> Any:
        """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""
        return self.tasks

    def with_stored(self, z: Tensor, stored: list[Tensor]) -> "Rows":
        """The same made of other tensors."""
        together, gradients = (None, stored) if self.together is None else (stored[0], [*stored[0].unbind()])
        return Rows(self.representation.with_values(z), self.tasks, gradients, together)

    def some(self, tasks: Collection[int]) -> "Rows":
        """Those of these tasks."""
        if len(tasks) == len(self.tasks):
            return self
        chosen = [(task, own) for task, own in zip(self.tasks, self.gradients, strict=True) if task in tasks]
        together = torch.stack([own for _, own in chosen]) if chosen and self.together is not None else None
        gradients = [own for _, own in chosen] if together is None else [*together.unbind()]
        return Rows(self.representation, tuple(task for task, _ in chosen), gradients, together)

    def magnitudes(self) -> Tensor:
        """[k] fp32 norms; not finite where an entry is not."""
        if self.together is None:
            return torch.stack([magnitude(gradient) for gradient in self.gradients])
        return magnitude(self.together.view(len(self.tasks), -1), dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Zeros in place of the gradients of tasks that are not `ok` [k]; one by one, so that few exist twice."""
        if self.together is not None:
            zero_unless(_beside(ok, self.together), self.together)
            return
        for place, counts in enumerate(ok.unbind()):
            self.gradients[place] = zeroed_unless(counts, self.gradients[place])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of all, times `weights` [k]."""
        return weighted_sum(self.gradients, weights)

    def of_task(self, place: int) -> Tensor:
        """The gradient of one task."""
        return self.gradients[place]

    @property
    def tensors(self) -> Tensor:
        """[k, ...]: all in one."""
        return torch.stack(self.gradients) if self.together is None else self.together

    def times_samples(self, z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """For gradients [k, samples, features], times the matrix, and z [samples, width], in fp32.

        Both are sums over samples: [k, width, columns] of z' g, and [k, width] of z^2 |g|^2.
        """
        return sums_over_samples(z, self.tensors.float() @ matrix)

    def leaf_gradients(self, own: Tensor | None) -> list[LeafGradient]:
        """None: no gradient of a leaf follows from dense gradients at z."""
        return []

    def own_gradients(self) -> list[LeafGradient]:
        """None."""
        return []

    def without_graph(self) -> "Rows":
        """The same gradients without the autograd graph."""
        return replace(self, representation=self.representation.without_graph())


def weighted_sum(tensors: Sequence[Tensor], weights: Tensor) -> Tensor:
    """The sum of tensors of one shape, times `weights` [k].

    The last one first, as autograd adds up the gradients of heads that were computed in task order: with equal weights
    it is the gradient of the sum of the losses, to the bit. Half precision is added up in fp32.
    """
    dtype = tensors[0].dtype
    wide = torch.promote_types(dtype, torch.float32)
    *others, last = zip(tensors, weights.to(wide).unbind(), strict=True)
    total = last[0].to(wide) * last[1]
    for tensor, weight in reversed(others):
        total.addcmul_(tensor, weight)
    return total.to(dtype)


def sums_over_samples(z: Tensor, projected: Tensor) -> tuple[Tensor, Tensor]:
    """As `Rows.times_samples`, of gradients [k, samples, columns]."""
    return z.T @ projected, projected.square().sum(-1) @ z.square()


def backward_to_representation(
    losses: Sequence[Tensor | None], rows: Rows, reaches: Sequence[Reach], retain_graph: bool
) -> list[LeafGradient]:
    """One backward pass for all heads: adds the tasks' gradients at z to `rows`, returns those at their own leaves.

    A hook on each node just above z takes the task's gradient as it arrives, before autograd adds it to the others'.
    """
    representation = rows.representation
    leaves = [list(reach.leaves.values()) for reach in reaches]
    every_leaf = [leaf for own in leaves for leaf in own]
    z = representation.tensor()
    passed_on = False

    def taking(task: int, positions: list[int]) -> Callable[..., Any]:
        def take(inputs: tuple[Tensor | None, ...], outputs: object) -> tuple[Tensor | None, ...]:
            nonlocal passed_on
            passed = list(inputs)
            for position in positions:
                if (gradient := inputs[position]) is not None:
                    # User hooks on z still expect a tensor, so one gradient is passed on. The hooks of a z that nobody
                    # holds cannot be disabled, and some overwrite what they see.
                    passed[position] = None if passed_on else torch.clone(gradient) if z is None else gradient
                    passed_on = True
                    rows.add(task, dense(gradient))
            return tuple(passed)

        return take

    hooks = [
        node.register_hook(taking(task, positions))
        for task, reach in enumerate(reaches)
        for node, positions in reach.takers.items()
    ]
    try:
        with hooks_disabled([z, *every_leaf]), nothing_below([representation]):
            gradients = gradients_from(losses, [representation.edge, *every_leaf], retain_graph)
    finally:
        for hook in hooks:
            hook.remove()
    return by_task(leaves, gradients[1:])


@dataclass(frozen=True)
class LeafGroup:
    """The gradients at leaves of one shape, each of one task alone, so that few operations serve all of them."""

    leaves: list[Tensor]
    tasks: tuple[int, ...]
    gradients: Tensor
    """[k, ...]: copies."""

    def weighted(self, own: Tensor | None) -> list[LeafGradient]:
        """(task, leaf, gradient), times `own` [m] (None: 1)."""
        gradients = self.gradients
        if own is not None:
            gradients = gradients * _beside(among(own, self.tasks).to(gradients.dtype), gradients)
        return list(zip(self.tasks, self.leaves, gradients.unbind(), strict=True))

    def magnitudes(self) -> Tensor:
        """[k] fp32 norms; not finite where an entry is not."""
        return magnitude(self.gradients.view(len(self.tasks), -1), dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Set the gradients of tasks that are not `ok` [k] to zero."""
        zero_unless(_beside(ok, self.gradients), self.gradients)

    @property
    def layout(self) -> Any:
        """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""
        return tuple(map(id, self.leaves)), self.tasks

    def with_stored(self, gradients: Tensor) -> "LeafGroup":
        """The same made of another tensor."""
        return replace(self, gradients=gradients)


def _beside(values: Tensor, tensors: Tensor) -> Tensor:
    """[k] -> [k, 1, ...], to be broadcast over [k, ...]."""
    return values.view(-1, *(1 for _ in tensors.shape[1:]))


def grouped(gradients: Sequence[LeafGradient]) -> tuple[list[LeafGradient], list[LeafGroup]]:
    """Those that stay alone, and the others by their shapes.

    Alone are sparse ones, those at a leaf of several tasks, and those with a layout in memory of their own.
    """
    owners = Counter([id(leaf) for _, leaf, _ in gradients])
    alone: list[LeafGradient] = []
    alike: dict[Any, list[LeafGradient]] = {}
    for task, leaf, gradient in gradients:
        key = gradient.shape, gradient.dtype, gradient.device
        stays = gradient.is_sparse or owners[id(leaf)] > 1 or not gradient.is_contiguous()
        (alone if stays else alike.setdefault(key, [])).append((task, leaf, gradient))
    groups = []
    for members in alike.values():
        tasks, leaves, of_one_shape = zip(*members, strict=True)
        groups.append(LeafGroup(list(leaves), tasks, torch.stack(of_one_shape)))
    return alone, groups


def by_task(leaves: Sequence[Sequence[Tensor]], gradients: Sequence[Tensor | None]) -> list[LeafGradient]:
    """The leaves of every task with their gradients, without those that no gradient reached."""
    every = [(task, leaf) for task, own in enumerate(leaves) for leaf in own]
    return [(task, leaf, g) for (task, leaf), g in zip(every, gradients, strict=True) if g is not None]
