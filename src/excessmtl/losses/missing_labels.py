"""Losses per task from targets with holes: NaN, or an ignore index.

The gradient of an entry that `torch.where` does not select is 0 times that of the loss, and 0 times NaN is NaN. So
targets are filled before the loss is computed, and what was computed for the filled ones is left out afterwards.
"""

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from excessmtl.distributed.processes import processes
from excessmtl.losses.estimate import learns_with_others
from excessmtl.losses.reduction import masked_mean, missing, with_one_mark
from excessmtl.losses.together import Compute, Lesson, StackableLoss, connected, of_entries, stacked_losses

Values = Tensor | Mapping[str, Tensor | None]
Loss = Callable[..., Tensor]


class _Labelled(NamedTuple):
    """A task that has labels in the batch."""

    task: str
    output: Tensor
    target: Tensor
    loss: Loss


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
        targets: The same for the labels. NaN and `ignore` mark what has no label. A task that a dict leaves out, or has
            None for, has no label in this batch. Not with a loss that several processes share an estimate of: there,
            targets without a label are NaN or `ignore` throughout.
        tasks: The task names.
        loss: A loss of `torch.nn.functional`, or a function or module of your own that returns one loss per entry; or a
            dict from task to such a loss. Dimensions that it reduces, as over classes, are labelled as a whole or not.
            A loss that has an argument `mask`, as the robust losses have, is given it: a bool tensor of the target's
            shape, True where there is a label. A loss that learns from the labels needs it, since missing targets are
            filled with 0.
        ignore: The number that stands for a missing label; among floats only where it is negative, since 0 may well be
            a label there.

    A task without any label in the batch has the loss 0 and a mask that is False throughout.
    """
    return losses_and_masks(outputs, targets, list(tasks), loss, ignore, stacked_losses)


def losses_and_masks(
    outputs: Values,
    targets: Values,
    tasks: list[str],
    loss: Loss | Mapping[str, Loss],
    ignore: int,
    compute: Compute,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """As `by_task`. `compute`: how the losses of several tasks are computed together."""
    labelled = _labelled_tasks(outputs, targets, tasks, loss, ignore)
    names = [own.task for own in labelled]
    _check_called(loss, set(tasks) - set(names))
    losses: dict[str, Tensor] = {}
    masks: dict[str, Tensor] = {}
    lessons: dict[str, Lesson] = {}
    for group in _groups(labelled):
        if isinstance(group[0].loss, StackableLoss) and not torch.compiler.is_compiling():
            own_tasks, own_outputs, own_targets, own_losses = zip(*group, strict=True)
            input = torch.stack([output.detach() for output in own_outputs])
            found = compute(own_losses, input, torch.stack(own_targets), ignore)
            losses.update(zip(own_tasks, connected(own_outputs, found), strict=True))
            masks.update(zip(own_tasks, _samples(found.labelled, 1).unbind(), strict=True))
            if found.lesson is not None:
                # Processes have to learn in one order, whatever the shapes of their batches: task by task.
                parts = found.lesson.parts() if processes() > 1 else [found.lesson]
                lessons.update(zip(own_tasks, parts, strict=False))
        else:
            for own in group:
                losses[own.task], masks[own.task] = _masked(own, ignore)
    for task in names:  # last: where a loss fails, none has learned
        if task in lessons:
            lessons[task].learn()
    return {task: losses[task] for task in names}, {task: masks[task] for task in names}


def _check_called(loss: Loss | Mapping[str, Loss], without_labels: Iterable[str]) -> None:
    """The other processes may have labels of a task, and would wait for its loss to be called in this one."""
    for task in without_labels:
        if learns_with_others(loss.get(task) if isinstance(loss, Mapping) else loss):
            raise ValueError(
                f"targets has no task {task!r}, whose loss makes one estimate with the other processes and has to be "
                "called in each of them; pass targets that are NaN (or ignore, in integers) throughout, or make the "
                "loss with pool=False"
            )


def _labelled_tasks(
    outputs: Any, targets: Any, tasks: list[str], loss: Loss | Mapping[str, Loss], ignore: int
) -> list[_Labelled]:
    """Those that have both an output and a target."""
    labelled = []
    columns = [_columns(argument, values, tasks) for argument, values in (("outputs", outputs), ("targets", targets))]
    losses = _columns("loss", loss, tasks) if isinstance(loss, Mapping) else [loss] * len(tasks)
    for task, output, target, own in zip(tasks, *columns, losses, strict=True):
        if output is not None and target is not None:
            if own is None:
                raise ValueError(f"loss has none for task {task!r}; give one for every task")
            labelled.append(_Labelled(task, output, with_one_mark(target, own, ignore), own))
    if not labelled:
        raise ValueError(f"targets has no task in it; pass the labels of at least one of {tasks}")
    return labelled


def _columns(argument: str, values: Any, tasks: list[str]) -> list[Any]:
    """What there is for each task; None where there is nothing."""
    if not isinstance(values, Mapping):
        return [column(argument, values, position, len(tasks)) for position in range(len(tasks))]
    unknown = [name for name in values if name not in tasks]
    if unknown:
        raise ValueError(f"{argument} names unknown task {unknown[0]!r}; the tasks are {tasks}")
    return [values.get(task) for task in tasks]


def column(argument: str, values: Any, position: int, tasks: int) -> Tensor:
    """What a matrix [batch, tasks, ...] has for one task."""
    if not isinstance(values, Tensor) or values.ndim < 2 or values.shape[1] != tasks:
        form = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{argument} must be [batch, {tasks} tasks, ...] or a dict from task to tensor, found {form}")
    return values[:, position]


def _groups(labelled: Sequence[_Labelled]) -> Iterable[list[_Labelled]]:
    """Tasks whose losses can be computed together."""
    groups: dict[Hashable, list[_Labelled]] = {}
    for own in labelled:
        task, output, target, loss = own
        _check(*own)
        key: Hashable = task
        if isinstance(loss, StackableLoss):
            form = output.shape, target.shape, target.dtype, output.device
            key = type(loss), loss.alike(of_entries(output, target), target), form
        groups.setdefault(key, []).append(own)
    return groups.values()


def _masked(own: _Labelled, ignore: int) -> tuple[Tensor, Tensor]:
    """The loss of one task, and which samples carry a label."""
    task, output, target, loss = own
    there = ~missing(target, ignore)
    shape = of_entries(output, target)
    output = output if output.shape == shape else output.reshape(shape)
    values = _unreduced(loss, output, target.masked_fill(~there, 0), there)
    labelled = _entries(values, there, loss)
    if labelled is None:
        raise ValueError(
            f"loss for task {task!r} must return one loss per entry of the target {tuple(target.shape)}, found shape "
            f"{tuple(values.shape)} for outputs {tuple(output.shape)}; pass e.g. F.mse_loss or F.cross_entropy, or a "
            "function that does not reduce"
        )
    return masked_mean(values, labelled, tuple(range(values.ndim))), _samples(labelled)


def _entries(values: Tensor, there: Tensor, loss: Loss) -> Tensor | None:
    """Which losses are of labelled entries: where the loss reduces a dimension, the target must be whole along it.

    Losses reduce the last dimensions; cross-entropy with probabilities as targets, as others may, the second one. None
    where the shapes do not fit.
    """
    after_classes = values.ndim > 1 and values.shape == (*there.shape[:1], *there.shape[2:])
    if values.ndim == 0 or values.shape != there.shape[: values.ndim]:
        return there.all(1) if after_classes else None
    if after_classes and (isinstance(loss, nn.CrossEntropyLoss) or getattr(loss, "func", loss) is cross_entropy):
        return there.all(1)
    return there.flatten(values.ndim).all(-1) if there.ndim > values.ndim else there


def _samples(labelled: Tensor, batch: int = 0) -> Tensor:
    """Which samples carry a label; `batch` is their dimension."""
    return labelled.flatten(batch + 1).any(-1) if labelled.ndim > batch + 1 else labelled


def _check(task: str, output: Tensor, target: Tensor, loss: Loss) -> None:
    reduction = getattr(loss, "reduction", "none") if isinstance(loss, nn.Module) else "none"
    if reduction != "none":
        raise ValueError(
            f"loss for task {task!r} is {type(loss).__name__}(reduction={reduction!r}); make it with reduction='none'"
        )
    shape = of_entries(output, target)
    if shape != target.shape and _expands(shape, target.shape):
        raise ValueError(
            f"outputs for task {task!r} have shape {tuple(output.shape)} and would be broadcast to the target's, "
            f"{tuple(target.shape)}; return one output per entry of the target, or expand them yourself"
        )


def _expands(shape: torch.Size, to: torch.Size) -> bool:
    """Whether a tensor of this shape would be broadcast to the other one."""
    trailing = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(own in (1, size) for own, size in zip(shape, trailing, strict=True))


def _unreduced(loss: Loss, output: Tensor, target: Tensor, labelled: Tensor) -> Tensor:
    """The loss without a reduction."""
    options: dict[str, Any] = {}
    arguments = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters
    if "mask" in arguments:
        options["mask"] = labelled
    if "reduction" in arguments and not isinstance(loss, nn.Module):
        options["reduction"] = "none"
    return loss(output, target, **options)
