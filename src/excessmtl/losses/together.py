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
from excessmtl.losses.reduction import masked_mean, missing


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
        """Losses of one class for which this agrees are computed together, and from one recording on a CUDA device.

        It has everything that `entries` depends on and that is no buffer.
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


class Stacked(NamedTuple):
    """The losses of several tasks without a graph, and what depends on them."""

    values: Tensor
    """[tasks]"""
    derivatives: Tensor | None
    """[tasks, ...] by the outputs; None where gradients are off."""
    labelled: Tensor
    """[tasks, ...] which targets count."""
    lesson: Lesson | None
    """What is to be learned from them."""


Compute = Callable[[Sequence[StackableLoss], Tensor, Tensor, int], Stacked]


def stacked_losses(losses: Sequence[StackableLoss], input: Tensor, target: Tensor, ignore: int) -> Stacked:
    """The mean loss of each task over its labelled entries, for losses that are `alike`.

    Args:
        losses: one for each task.
        input: [tasks, ...] the outputs.
        target: [tasks, ...] the labels; NaN, or `ignore` in integers, is none.
        ignore: that integer.
    """
    labelled, backward = ~missing(target, ignore), torch.is_grad_enabled()
    input = input.detach().float().requires_grad_(backward)
    of_targets = input.view(len(losses), *of_entries(input[0], target[0]))
    entries, lesson = type(losses[0]).entries(losses, of_targets, target, labelled)
    values = masked_mean(entries, labelled, tuple(range(1, target.ndim)))
    derivatives = torch.autograd.grad(values.sum(), input)[0] if backward else None
    return Stacked(values.detach(), derivatives, labelled, lesson)


def connected(outputs: Sequence[Tensor], found: Stacked) -> list[Tensor]:
    """The loss of each task, connected with its output alone."""
    values = found.values.unbind()
    if found.derivatives is None:
        return list(values)
    parts = zip(outputs, values, found.derivatives.unbind(), strict=True)
    return [_Known.apply(*part) for part in parts]  # type: ignore[no-untyped-call]


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
