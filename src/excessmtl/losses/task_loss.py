"""The loss of one task by the kind of its labels: what it is trained with, what it is evaluated with."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from excessmtl.losses.classification import RobustBCEWithLogits, RobustCrossEntropy, probabilities
from excessmtl.losses.estimate import ordinary
from excessmtl.losses.reduction import missing, with_one_mark
from excessmtl.losses.regression import RobustMSELoss

Loss = Callable[..., Tensor]
_KINDS: dict[str, tuple[type[nn.Module], Loss]] = {
    "classification": (RobustCrossEntropy, cross_entropy),
    "binary": (RobustBCEWithLogits, binary_cross_entropy_with_logits),
    "regression": (RobustMSELoss, mse_loss),
}
"""Kind -> its robust loss, and its plain one."""
_NOT_FOR_USERS = {"self", "reduction", "ignore_index", "pool"}


class TaskLoss(nn.Module):
    """The loss of one task, without a reduction.

    Args:
        task: its name.
        loss: the kind of its labels, or a loss of the user's own.
        robust: whether the loss of a kind distrusts labels that look wrong.
        pool: whether all processes make one estimate of the noise.
        options: those of the loss of a kind.
    """

    def __init__(self, task: str, loss: Any, robust: bool, pool: bool, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.task, self.kind = task, loss if isinstance(loss, str) else None
        self._plain: PlainLoss | None = None
        self.training_loss: Loss
        if self.kind is None:
            self.training_loss = _own(task, loss, options)
            return
        if self.kind not in _KINDS:
            raise ValueError(_wrong(task, loss))
        robust_loss, plain_loss = _KINDS[self.kind]
        known = inspect.signature(robust_loss).parameters.keys() - _NOT_FOR_USERS - (set() if robust else {"strength"})
        for name in options.keys() - known:
            raise ValueError(
                f"loss_options[{task!r}] has {name!r}, which the loss of kind {self.kind!r} does not take; it takes "
                f"{sorted(known)}"
            )
        plain = PlainLoss(plain_loss, {name: value for name, value in options.items() if name != "strength"})
        self._plain = plain if robust else None
        self.training_loss = robust_loss(reduction="none", pool=pool, **options) if robust else plain

    @property
    def plain_loss(self) -> Loss:
        """What the task is evaluated with."""
        return self._plain or self.training_loss

    def labels(self, output: Tensor, target: Tensor, mask: Tensor | None, ignore: int) -> tuple[Tensor, Tensor]:
        """Output and target in the form of the kind; what has no label is `ignore` in class numbers, else NaN."""
        target = with_one_mark(target, self.training_loss, ignore) if self.kind is None else target
        if self.kind in ("binary", "regression"):
            if self.kind == "binary" or not target.is_floating_point():
                numbers = target.float()
                # A mark for classes may be a number to regress, 0 for example; and -100 is no bool.
                marks = ignore < 0 if self.kind == "regression" else target.dtype != torch.bool or ignore in (0, 1)
                target = numbers.masked_fill(numbers == ignore, torch.nan) if marks else numbers
            if output.shape == (*target.shape, 1):  # a head of one output
                output = output.squeeze(-1)
        elif self.kind == "classification" and target.is_floating_point() and target.shape != output.shape:
            target = target.masked_fill(target.isnan(), ignore).long()
        if not target.is_floating_point() and (self.kind == "classification" or mask is not None):
            target = target.long()  # not every type can hold `ignore`
        self._check_shapes(output, target)
        if mask is not None:
            mark = torch.nan if target.is_floating_point() else ignore
            target = target.masked_fill(~self._expanded(mask, target), mark)
        return output, target

    def without_labels(self, output: Tensor, ignore: int) -> Tensor | None:
        """The target of a batch that has no label; None where its shape is not known."""
        if self.kind is None:
            return None
        if self.kind == "classification":
            return torch.full((len(output), *output.shape[2:]), ignore, device=output.device)
        return torch.full_like(output, torch.nan, requires_grad=False)

    def samples(self, output: Tensor, target: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
        """Output and target for a diagnosis: every labelled position of a map or a sequence is a sample."""
        target = target.masked_fill(missing(target, ignore), torch.nan) if target.is_floating_point() else target
        if self.kind == "classification" and output.ndim > 2:
            return output.movedim(1, -1).flatten(0, -2), target.flatten()
        if self.kind == "binary" or (self.kind == "regression" and output.ndim > 2):
            return output.flatten(), target.flatten()
        return output, target

    def _check_shapes(self, output: Tensor, target: Tensor) -> None:
        if self.kind is None:
            return
        of_classes = self.kind == "classification"
        expected = (*output.shape[:1], *output.shape[2:]) if of_classes else output.shape
        if target.shape == expected and output.ndim > of_classes:
            return
        form = "[batch, classes, ...] and [batch, ...]" if of_classes else "alike"
        hint = "; class probabilities as targets need a loss of your own" if target.shape == output.shape else ""
        raise ValueError(
            f"outputs and targets of task {self.task!r} must be {form} for kind {self.kind!r}, found shapes "
            f"{tuple(output.shape)} and {tuple(target.shape)}{hint}"
        )

    def _expanded(self, mask: Tensor, target: Tensor) -> Tensor:
        if mask.dtype != torch.bool or mask.shape not in (target.shape, target.shape[:1]):
            raise ValueError(
                f"mask of task {self.task!r} must be a bool tensor of shape {tuple(target.shape)} or "
                f"{tuple(target.shape[:1])}, found {mask.dtype} {tuple(mask.shape)}"
            )
        mask = mask.to(target.device)
        return mask.reshape(*mask.shape, *(1 for _ in range(target.ndim - mask.ndim)))


class PlainLoss(nn.Module):
    """A loss of `torch.nn.functional` without a reduction; tensors among its options move with the module."""

    def __init__(self, function: Loss, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.function = function
        self.options = {name: value for name, value in options.items() if not isinstance(value, Tensor)}
        self.of_two_classes = function is binary_cross_entropy_with_logits
        for name in options.keys() - self.options.keys():
            self.register_buffer(name, ordinary(options[name]), persistent=False)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """One loss per label, in fp32."""
        target = probabilities(target) if self.of_two_classes else target
        weights = {name: weight.float() for name, weight in self.named_buffers()}
        return self.function(input.float(), target, reduction="none", **self.options, **weights)


def _own(task: str, loss: Any, options: Mapping[str, Any]) -> Loss:
    """A loss of the user's own. Those of `torch.nn` take the mean by default: then a copy that does not."""
    if not callable(loss):
        raise ValueError(_wrong(task, loss))
    if options:
        raise ValueError(f"loss_options[{task!r}] is not used, as that task has a loss of its own; make it with them")
    own: Loss = loss
    if isinstance(loss, nn.Module) and getattr(loss, "reduction", "none") == "mean":
        own = copy(loss)
        vars(own)["reduction"] = "none"
    return own


def _wrong(task: str, loss: Any) -> str:
    return f"tasks[{task!r}] must be one of {list(_KINDS)} or a loss of your own, found {loss!r:.60}"
