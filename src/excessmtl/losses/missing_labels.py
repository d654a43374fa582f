"""Losses per task from targets with holes: NaN in floats, an ignore index in integers.

The gradient of an entry that `torch.where` does not select is 0 times that of the loss, and 0 times NaN is NaN. So
targets are filled before the loss is computed, and what was computed for the filled ones is left out afterwards.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from excessmtl.losses.estimate import learns_with_others

Values = Tensor | Mapping[str, Tensor | None]
Loss = Callable[..., Tensor]


def by_task(
    outputs: Values,
    targets: Values,
    tasks: Sequence[str],
    loss: Loss | Mapping[str, Loss] = mse_loss,
    ignore: int = -100,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Task -> mean loss over its labelled entries, and task -> which samples carry a label: for `balancer.backward`.

    Args:
        outputs: `[batch, tasks, ...]` in the order of `tasks`, or a dict from task to `[batch, ...]`.
        targets: The same for the labels. NaN (in floats) and `ignore` (in integers) mark what has no label. A task that
            a dict leaves out, or has None for, has no label in this batch. Not with a loss that several processes
            share an estimate of: there, targets without a label are NaN or `ignore` throughout.
        tasks: The task names.
        loss: A loss of `torch.nn.functional`, or a function or module of your own that returns one loss per entry; or a
            dict from task to such a loss. Dimensions that it reduces, as over classes, are labelled as a whole or not.
            A loss that has an argument `mask`, as the robust losses have, is given it: a bool tensor of the target's
            shape, True where there is a label. A loss that learns from the labels needs it, since missing targets are
            filled with 0.
        ignore: The integer that stands for a missing label.

    A task without any label in the batch has the loss 0 and a mask that is False throughout.
    """
    losses, masks = {}, {}
    pairs = _pairs(outputs, targets, list(tasks))
    _check_called(loss, set(tasks) - {task for task, _, _ in pairs})
    for task, output, target in pairs:
        of_task = _of_task("loss", loss, task, list(tasks)) if isinstance(loss, Mapping) else loss
        losses[task], masks[task] = _masked(task, output, target, of_task, ignore)
    return losses, masks


def masked_mean(values: Tensor, labelled: Tensor, dim: tuple[int, ...]) -> Tensor:
    """The mean over the labelled entries along `dim`; 0 where there is none. Nothing is read from the device."""
    wide = torch.promote_types(values.dtype, torch.float32)
    return torch.where(labelled, values, 0).sum(dim, dtype=wide) / labelled.sum(dim).clamp(min=1)


def _check_called(loss: Loss | Mapping[str, Loss], without_labels: Iterable[str]) -> None:
    """The other processes may have labels of a task, and would wait for its loss to be called in this one."""
    for task in without_labels:
        if learns_with_others(loss.get(task) if isinstance(loss, Mapping) else loss):
            raise ValueError(
                f"targets has no task {task!r}, whose loss makes one estimate with the other processes and has to be "
                "called in each of them; pass targets that are NaN (or ignore, in integers) throughout, or make the "
                "loss with pool=False"
            )


def _pairs(outputs: Any, targets: Any, tasks: list[str]) -> list[tuple[str, Tensor, Tensor]]:
    """Task, output and target, for the tasks that have both."""
    found = []
    for position, task in enumerate(tasks):
        output, target = (
            _of_task(argument, values, task, tasks)
            if isinstance(values, Mapping)
            else column(argument, values, position, len(tasks))
            for argument, values in (("outputs", outputs), ("targets", targets))
        )
        if output is not None and target is not None:
            found.append((task, output, target))
    if not found:
        raise ValueError(f"targets has no task in it; pass the labels of at least one of {tasks}")
    return found


def _of_task(argument: str, values: Mapping[str, Any], task: str, tasks: list[str]) -> Any:
    unknown = [name for name in values if name not in tasks]
    if unknown:
        raise ValueError(f"{argument} names unknown task {unknown[0]!r}; the tasks are {tasks}")
    if argument == "loss" and task not in values:
        raise ValueError(f"loss has none for task {task!r}; give one for every task")
    return values.get(task)


def column(argument: str, values: Any, position: int, tasks: int) -> Tensor:
    """What a matrix [batch, tasks, ...] has for one task."""
    if not isinstance(values, Tensor) or values.ndim < 2 or values.shape[1] != tasks:
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{argument} must be [batch, {tasks} tasks, ...] or a dict from task to tensor, found {found}")
    return values[:, position]


def _masked(task: str, output: Tensor, target: Tensor, loss: Loss, ignore: int) -> tuple[Tensor, Tensor]:
    if target.is_floating_point():
        missing = target.isnan()
        if output.shape == (*target.shape, 1):  # a head of one output; broadcasting would pair all samples
            output = output.squeeze(-1)
    else:
        missing = target == ignore
    if output.shape != target.shape and _expands(output.shape, target.shape):
        raise ValueError(
            f"outputs for task {task!r} have shape {tuple(output.shape)} and would be broadcast to the target's, "
            f"{tuple(target.shape)}; return one output per entry of the target, or expand them yourself"
        )
    values = _entries(task, loss, output, target.masked_fill(missing, 0), ~missing)
    kept = missing.shape[: values.ndim]
    if values.ndim == 0 or values.shape != kept:
        raise ValueError(
            f"loss for task {task!r} must return one loss per entry of the target {tuple(target.shape)}, found shape "
            f"{tuple(values.shape)} for outputs {tuple(output.shape)}; pass e.g. F.mse_loss or F.cross_entropy, or a "
            "function that does not reduce"
        )
    labelled = ~missing.flatten(values.ndim).any(-1) if missing.ndim > values.ndim else ~missing
    mean = masked_mean(values, labelled, tuple(range(values.ndim)))
    return mean, labelled.reshape(len(labelled), -1).any(1)


def _expands(shape: torch.Size, to: torch.Size) -> bool:
    """Whether a tensor of this shape would be broadcast to the other one."""
    trailing = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(own in (1, size) for own, size in zip(shape, trailing, strict=True))


def _entries(task: str, loss: Loss, output: Tensor, target: Tensor, labelled: Tensor) -> Tensor:
    """The loss without a reduction."""
    options: dict[str, Any] = {}
    arguments = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters
    if "mask" in arguments:
        options["mask"] = labelled
    if isinstance(loss, nn.Module):
        reduction = getattr(loss, "reduction", "none")
        if reduction != "none":
            raise ValueError(
                f"loss for task {task!r} is {type(loss).__name__}(reduction={reduction!r}); make it with "
                "reduction='none'"
            )
    elif "reduction" in arguments:
        options["reduction"] = "none"
    return loss(output, target, **options)
