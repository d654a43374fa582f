"""Dense gradients: those of tasks at one tensor z of the representation, and those at leaves of one shape."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.plan import Reach
from excessmtl.graph.representation import Representation, nothing_below
from excessmtl.tensors import among, dense, magnitude, magnitudes, zero_unless, zeroed_unless
from excessmtl.torch_private import gradients_from, hooks_disabled

LeafGradient = tuple[int, Tensor, Tensor]
"""A task, a leaf, and the gradient of the task there."""


@dataclass(frozen=True)
class Stacked:
    """k tensors of one shape in one, so that checking, masking and weighing them takes few operations.

    Memory is laid out as in theirs: channels last stays channels last.
    """

    flat: Tensor
    """[k, n], in the order of memory."""
    shape: torch.Size
    order: tuple[int, ...]
    """Dimensions from the outermost to the innermost in memory."""

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> "Stacked":
        """Copies of these."""
        order = memory_order(tensors[0])
        ordered = tensors if _usual(order) else [tensor.permute(order) for tensor in tensors]
        return Stacked(torch.stack([*ordered]).view(len(tensors), -1), tensors[0].shape, order)

    def shaped(self, rows: Tensor) -> Tensor:
        """[n] or [k, n] in the order of memory -> the original shape."""
        lead = rows.ndim - 1
        if _usual(self.order):
            return rows.reshape((*rows.shape[:lead], *self.shape))
        sizes = [self.shape[dim] for dim in self.order]
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return rows.reshape(*rows.shape[:lead], *sizes).permute(*range(lead), *(lead + place for place in back))

    def magnitudes(self) -> Tensor:
        """[k] fp32 norms; not finite where an entry is not."""
        return magnitude(self.flat, dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Set the tensors to zero where not `ok` [k]."""
        zero_unless(ok.unsqueeze(1), self.flat)


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Its dimensions from the outermost to the innermost in memory."""
    strides = tensor.stride()
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def _usual(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))


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
        representation = self.representation.with_values(z)
        if self.together is None:
            return Rows(representation, self.tasks, stored)
        return Rows(representation, self.tasks, [*stored[0].unbind()], stored[0])

    def some(self, places: Sequence[int]) -> "Rows":
        """Those at these places."""
        tasks, gradients = tuple(self.tasks[place] for place in places), [self.gradients[place] for place in places]
        if self.together is None or len(places) == len(self.tasks):
            return replace(self, tasks=tasks, gradients=gradients)
        together = torch.stack(gradients)
        return replace(self, tasks=tasks, gradients=[*together.unbind()], together=together)

    def magnitudes(self) -> Tensor:
        """[k] fp32 norms; not finite where an entry is not."""
        return magnitudes(self.gradients) if self.together is None else magnitude(self.together.flatten(1), dim=1)

    def zero_unless(self, ok: Tensor) -> None:
        """Zeros in place of the gradients of tasks that are not `ok` [k]; one by one, so that few exist twice."""
        if self.together is not None:
            zero_unless(ok.view(-1, *(1 for _ in self.together.shape[1:])), self.together)
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


class Arrivals:
    """Takes gradients as they arrive at z. Large ones are not copied, unless they are to lie side by side."""

    def __init__(self, representation: Representation, tasks: Sequence[int], inputs: StepInputs) -> None:
        z = representation.stored
        one_by_one = inputs.probe is Probe.LOSSES or (inputs.per_sample and z.ndim != 2)
        together = None if one_by_one else z.new_empty((len(tasks), *z.shape), requires_grad=False)
        nothing = z.new_zeros(()).expand(z.shape) if together is None else z
        gradients = [nothing] * len(tasks) if together is None else [*together.unbind()]
        self._rows = Rows(representation, tuple(tasks), gradients, together)
        self._arrived: set[int] = set()

    def add(self, task: int, gradient: Tensor) -> None:
        """Of a task, beside what has arrived for it before."""
        rows = self._rows
        place = rows.tasks.index(task)
        if task in self._arrived:
            gradient = rows.gradients[place] + gradient
        self._arrived.add(task)
        if rows.together is None:
            rows.gradients[place] = gradient
        else:
            rows.gradients[place].copy_(gradient)

    def rows(self) -> Rows:
        """All of them, zero where nothing arrived."""
        if self._rows.together is not None:
            for task, own in zip(self._rows.tasks, self._rows.gradients, strict=True):
                if task not in self._arrived:
                    own.zero_()
        return self._rows

    def arrived(self) -> Rows:
        """Those of the tasks for which something arrived, and no others."""
        return self._rows.some([place for place, task in enumerate(self._rows.tasks) if task in self._arrived])


def sums_over_samples(z: Tensor, projected: Tensor) -> tuple[Tensor, Tensor]:
    """As `Rows.times_samples`, of gradients [k, samples, columns]."""
    return z.T @ projected, projected.square().sum(-1) @ z.square()


def backward_to_representation(
    losses: Sequence[Tensor | None],
    representation: Representation,
    reaches: Sequence[Reach],
    store: Callable[[int, Tensor], None],
    retain_graph: bool,
) -> list[LeafGradient]:
    """One backward pass for all heads: hands the tasks' gradients at z to `store`, returns those at their own leaves.

    A hook on each node just above z takes the task's gradient as it arrives, before autograd adds it to the others'.
    """
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
                    store(task, dense(gradient))
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
    """The gradients at leaves of one shape, each of one task alone."""

    leaves: list[Tensor]
    tasks: tuple[int, ...]
    gradients: Stacked

    def weighted(self, own: Tensor | None) -> list[LeafGradient]:
        """(task, leaf, gradient), times `own` [m] (None: 1)."""
        flat = self.gradients.flat
        if own is not None:
            flat = flat * among(own, self.tasks).to(flat.dtype).unsqueeze(1)
        return list(zip(self.tasks, self.leaves, self.gradients.shaped(flat).unbind(), strict=True))

    @property
    def layout(self) -> Any:
        """Hashable; equal for what is computed by the same operations on tensors of the same shapes."""
        return tuple(map(id, self.leaves)), self.tasks, self.gradients.shape, self.gradients.order

    def with_stored(self, flat: Tensor) -> "LeafGroup":
        """The same made of another tensor."""
        return replace(self, gradients=replace(self.gradients, flat=flat))


def grouped(gradients: Sequence[LeafGradient]) -> tuple[list[LeafGradient], list[LeafGroup]]:
    """Those that have to stay alone, being sparse or at a leaf of several tasks, and the others by their shapes."""
    owners = Counter([id(leaf) for _, leaf, _ in gradients])
    alone: list[LeafGradient] = []
    alike: dict[Any, list[LeafGradient]] = {}
    for task, leaf, gradient in gradients:
        key = gradient.shape, gradient.dtype, gradient.device
        stays = gradient.is_sparse or owners[id(leaf)] > 1
        (alone if stays else alike.setdefault(key, [])).append((task, leaf, gradient))
    groups = []
    for members in alike.values():
        tasks, leaves, of_one_shape = zip(*members, strict=True)
        groups.append(LeafGroup(list(leaves), tasks, Stacked.of(of_one_shape)))
    return alone, groups


def by_task(leaves: Sequence[Sequence[Tensor]], gradients: Sequence[Tensor | None]) -> list[LeafGradient]:
    """The leaves of every task with their gradients, without those that no gradient reached."""
    every = [(task, leaf) for task, own in enumerate(leaves) for leaf in own]
    return [(task, leaf, g) for (task, leaf), g in zip(every, gradients, strict=True) if g is not None]
