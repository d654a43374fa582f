"""The losses of several tasks by the operations of one.

Outputs and targets of one shape are stacked, and the loss of each task and its derivative by the task's output are
computed for all of them at once. Then each loss is connected with its own output alone: in one graph, the backward pass
of one task would go through those of all, and one task that is not finite would make all gradients NaN.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from excessmtl.losses.estimate import Estimate, learn


class Lesson(NamedTuple):
    """What estimates of one class are to learn from a batch, once all losses have been computed."""

    estimates: Sequence[Estimate]
    batch: tuple[Any, ...]
    """Each tensor is [estimates, ...]."""

    def learn(self) -> None:
        """Now."""
        if len(set(self.estimates)) == len(self.estimates):
            learn(self.estimates, *self.batch)
        else:  # one that was used for two tasks learns from one after the other
            for part in self.parts():
                part.learn()

    def parts(self) -> list["Lesson"]:
        """A lesson for each estimate."""
        return [
            Lesson([estimate], tuple(part[i : i + 1] if isinstance(part, Tensor) else part for part in self.batch))
            for i, estimate in enumerate(self.estimates)
        ]


Entries = tuple[Tensor, Lesson | None]
"""[losses, ...] the loss of each entry, and what is to be learned; nothing in `eval()` mode or without gradients."""


class StackableLoss(nn.Module):
    """A loss that can be computed for several tasks at once, each task with a loss of its own."""

    def alike(self, shape: torch.Size, target: Tensor) -> Hashable:
        """Losses of one class for which this agrees are computed together.

        Targets that do not fit the outputs, which have this shape, are refused.
        """
        raise NotImplementedError

    @classmethod
    def entries(cls, losses: Sequence[Self], input: Tensor, target: Tensor, counts: Tensor) -> Entries:
        """From tensors that are [losses, ...] too. `counts` says which targets count."""
        raise NotImplementedError

    def alone(self, input: Tensor, target: Tensor, counts: Tensor) -> Tensor:
        """The loss of each entry of one task. The loss has learned from them."""
        values, lesson = self.entries([self], input[None], target[None], counts[None])
        if lesson is not None:
            lesson.learn()
        return values[0] if values.ndim else values


def connected(
    losses: Sequence[StackableLoss],
    outputs: Sequence[Tensor],
    targets: Tensor,
    counts: Tensor,
    reduce: Callable[[Tensor], Tensor],
) -> tuple[list[Tensor], Lesson | None]:
    """The loss of each task, connected with its output alone, and what is to be learned.

    Args:
        losses: of tasks that are `alike`.
        outputs: one for each task.
        targets: [tasks, ...].
        counts: which of them count.
        reduce: from the losses of the entries, [tasks, ...], to one for each task.
    """
    input = torch.stack([output.detach() for output in outputs]).float()
    backward = torch.is_grad_enabled()
    of_targets = input.requires_grad_(backward).view(len(outputs), *of_entries(outputs[0], targets[0]))
    entries, lesson = type(losses[0]).entries(losses, of_targets, targets, counts)
    values = reduce(entries)
    if not backward:
        return list(values.unbind()), lesson
    (derivatives,) = torch.autograd.grad(values.sum(), input)
    parts = zip(outputs, values.detach().unbind(), derivatives.unbind(), strict=True)
    return [_Known.apply(*part) for part in parts], lesson  # type: ignore[no-untyped-call]


def of_entries(output: Tensor, target: Tensor) -> torch.Size:
    """The shape of the output, without the last dimension of a head of one output: it would be broadcast."""
    single_output = target.is_floating_point() and output.shape == (*target.shape, 1)
    return target.shape if single_output else output.shape


class _Known(torch.autograd.Function):
    """A loss whose value and derivative by the output are known."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, value: Tensor, derivative: Tensor) -> Tensor:
        """The value."""
        ctx.save_for_backward(derivative)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradient for the output; autograd takes it to the output's precision."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "losses of several tasks that are computed together have no second derivative, found "
                "create_graph=True; call the loss of each task by itself"
            )
        (derivative,) = ctx.saved_tensors
        return gradients[0] * derivative, None, None
