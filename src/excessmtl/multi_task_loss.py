"""MultiTaskLoss: a loss for each task, a balancer and the diagnosis in one object."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl.balancer import At
from excessmtl.create import create, likelihoods, with_likelihoods
from excessmtl.diagnosis import Report, diagnose
from excessmtl.diagnosis.inputs import of_both_classes
from excessmtl.losses.estimate import learns_with_others
from excessmtl.losses.missing_labels import column, losses_and_masks
from excessmtl.losses.task_loss import Loss, TaskLoss
from excessmtl.losses.together import Compute, stacked_losses
from excessmtl.recorded_losses import RecordedLosses
from excessmtl.step.result import Step

_EXTRA = "_extra_state"
"""Under this name torch keeps what `get_extra_state` returns."""
_MEMORY = "balancer.memory."


class MultiTaskLoss(nn.Module):
    """The whole job of a multi-task loss: robust losses, missing labels, weights of the tasks, a report on the labels.

    `criterion.backward(outputs, targets)` takes the place of computing the losses and calling `backward` on their sum.
    For trainers that call `backward` themselves, `criterion(outputs, targets)` is a scalar. The `state_dict` has all
    that was learned: the balancer's state and the noise estimates.

    `criterion.balancer` is the balancer, `criterion.losses` has the loss of each task. What this object does can be
    written out with `excessmtl.create`, `excessmtl.losses.by_task` and `excessmtl.diagnose`.

    Args:
        tasks: Task -> "classification" (class numbers; outputs `[batch, classes, ...]`), "binary" (0 or 1; one logit
            per label), "regression" (numbers; outputs like targets), or a loss of your own: a function or module that
            returns one loss per label or per sample, or a loss of `torch.nn`. One that has an argument `mask` is
            given it, a bool tensor of the target's shape; without one it is called with 0 where a target is missing.
        shared: The modules, or the parameters, that all tasks share.
        method: How the tasks are weighed; `excessmtl.list_methods()` has all names.
        robust: Whether the losses of the three kinds distrust labels that look wrong. False: those of `torch.nn`.
        ignore: The number that stands for a missing label, as NaN does. One that is not negative is a class number, and
            none of numbers to regress, where 0 may be a label.
        loss_options: Task -> options of its loss, e.g. `{"digit": {"weight": class_weights, "label_smoothing": 0.1}}`,
            `{"spam": {"pos_weight": torch.tensor(9.0)}}`. The loss of a task is the mean over its labels, whatever the
            weights of their classes.
        options: Those of `excessmtl.create`, e.g. `protect`, `scale`, `heads`, `z`, and of the method. On a CUDA device
            the robust losses are recorded, as the balancer's arithmetic is; `record=False` turns off both.

    Example:
        >>> criterion = MultiTaskLoss({"digit": "classification", "price": "regression"}, shared=model.encoder)
        >>> step = criterion.backward(model(x), {"digit": digit, "price": price})
        >>> print(criterion.diagnose(model(held_out_x), held_out_targets))
    """

    def __init__(
        self,
        tasks: Mapping[str, str | Loss],
        shared: nn.Module | Iterable[nn.Module | Tensor],
        method: str = "excess",
        *,
        robust: bool = True,
        ignore: int = -100,
        loss_options: Mapping[str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(tasks, Mapping):
            raise ValueError(
                f"tasks must be a dict from task name to its kind or loss, found {tasks!r:.80}; pass e.g. "
                '{"digit": "classification"}'
            )
        self.robust, self.ignore = robust, ignore
        own, pool = dict(loss_options or {}), options.get("pool", True)
        parts = [TaskLoss(task, loss, robust, pool, own.get(task, {})) for task, loss in tasks.items()]
        given = "likelihoods" in options
        options = with_likelihoods(method, options, {part.task: part.training_loss for part in parts})
        # The method holds the same dict: when tasks come and go, it is up to date.
        self._likelihoods: dict[str, bool | str] = {} if given else options.get("likelihoods", {})
        self.balancer = create(method, list(tasks), shared, **options)
        self._check_known("loss_options", own)
        self._take([part.to(self.balancer.device) for part in parts])

    @property
    def losses(self) -> dict[str, Loss]:
        """Task -> the loss that it is trained with. A robust one has an estimate of the `noise`."""
        return {task: part.training_loss for task, part in self._parts.items()}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, in the order of every tensor that a step reports."""
        return self.balancer.tasks

    @property
    def kinds(self) -> dict[str, str | None]:
        """Task -> the kind of its labels; None where it has a loss of its own."""
        return {task: part.kind for task, part in self._parts.items()}

    def backward(
        self,
        outputs: Any,
        targets: Any,
        at: At | None = None,
        *,
        mask: Any = None,
        scaler: Any = None,
        accumulate: bool = False,
        micro_batches: int = 1,
        **extras: Any,
    ) -> Step:
        """Compute the losses and add the balanced gradient to `.grad` of everything they reach.

        Args:
            outputs: Task -> what the model returned, as a dict or as an object with tasks as attributes (a Hugging Face
                output, a dataclass); what else is in it does not matter. Or a tensor `[batch, tasks, ...]` in the
                order of tasks.
            targets: The same for the labels. NaN and `ignore` mark what has no label. A task that is left out, or
                None, has no label in this batch.
            at: The shared representation, where it is not simply the output of `shared`.
            mask: What has a label, where neither NaN nor `ignore` says so: task -> bool tensor over the batch or of the
                target's shape, or such a tensor `[batch, tasks, ...]`.
            scaler: A `torch.amp.GradScaler`; gradients are scaled by it, statistics are not.
            accumulate: True for all micro-batches of a step but the last.
            micro_batches: How many micro-batches make up a step; the losses are divided by it.
            extras: What the method reads besides, as in `Balancer.backward`.
        """
        losses, masks = self._divided(outputs, targets, mask, micro_batches)
        return self.balancer.backward(losses, at, mask=masks, scaler=scaler, accumulate=accumulate, **extras)

    def forward(
        self,
        outputs: Any,
        targets: Any,
        at: At | None = None,
        *,
        mask: Any = None,
        scaler: Any = None,
        accumulate: bool = False,
        micro_batches: int = 1,
        **extras: Any,
    ) -> Tensor:
        """A scalar to call `.backward()` on: the same gradient on the shared parameters as `backward`.

        Task-specific parameters get the gradient of their weighted loss. `criterion.balancer.last_step` has the step.

        In evaluation mode, and where gradients are off, it is the plain mean over the tasks that have labels of their
        plain losses. It is comparable between epochs, and nothing is learned.
        """
        if self.training and torch.is_grad_enabled():
            losses, masks = self._divided(outputs, targets, mask, micro_batches)
            scalar: Tensor = self.balancer(losses, at, mask=masks, scaler=scaler, accumulate=accumulate, **extras)
            return scalar
        losses, masks = self.by_task(outputs, targets, mask)
        labelled = torch.stack([samples.any() for samples in masks.values()])
        values = torch.stack([loss.float() for loss in losses.values()])
        return torch.where(labelled, values, 0).sum() / labelled.sum().clamp(min=1)

    def by_task(
        self, outputs: Any, targets: Any, mask: Any = None, tasks: Sequence[str] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Task -> its loss, and task -> which samples carry a label: what `backward` gives to the balancer.

        In evaluation mode, and where gradients are off, the losses are the plain ones. `tasks`: those to compute.
        """
        training = self.training and torch.is_grad_enabled()
        outputs, targets = self._values_by_task(outputs, targets, mask)
        losses = {task: part.training_loss if training else part.plain_loss for task, part in self._parts.items()}
        own = {task: losses[task] for task in tasks or self.tasks}
        compute = self._compute if training else stacked_losses
        return losses_and_masks(outputs, targets, list(own), own, self.ignore, compute)

    def diagnose(
        self, outputs: Any = None, targets: Any = None, *, mask: Any = None, second_labels: Any = None
    ) -> Report:
        """Which tasks have bad labels: a report that prints as a table.

        Without arguments, what training shows. With the outputs for samples that the network was not trained on, and
        their labels, it also tells hard tasks from noisy ones, estimates how many labels are wrong, and names them.

        Args:
            outputs: As for `backward`, of all held-out samples. So are `targets` and `mask`. The labels must be as
                noisy as those of training: hold out a part of the training data.
            targets: Their labels.
            mask: What has a label.
            second_labels: Task -> other labels of the same samples, like `targets` or as in `excessmtl.diagnose`.
        """
        if outputs is None and targets is None:
            return self.balancer.diagnose(self.losses)
        predictions, labels = self._values_by_task(outputs, targets, mask, fill=True)
        samples = {task: self._parts[task].samples(predictions[task], labels[task], self.ignore) for task in labels}
        if second_labels is not None:
            is_dict, given = isinstance(second_labels, Mapping), self._values("targets", targets)
            others = dict(second_labels) if is_dict else self._values("second_labels", second_labels)
            shapes = {task: getattr(own, "shape", None) for task, own in others.items()}
            alike = {task: others[task] for task in given if task in shapes and shapes[task] == given[task].shape}
            formed = self._values_by_task(outputs, alike, None)[1] if alike else {}
            for task in alike:  # the others are samples already
                others[task] = self._parts[task].samples(predictions[task], formed[task], self.ignore)[1]
            second_labels = others
        kinds = {task: kind for task, kind in self.kinds.items() if task in samples and kind is not None}
        return diagnose(
            {
                task: of_both_classes(prediction) if kinds.get(task) == "binary" else prediction
                for task, (prediction, _) in samples.items()
            },
            {task: label for task, (_, label) in samples.items()},
            kinds,
            second_labels=second_labels,
            ignore=self.ignore,
        )

    def add_task(self, name: str, loss: str | Loss, loss_options: Mapping[str, Any] | None = None) -> None:
        """One task more, after the others, with its kind or its loss. The others go on."""
        part = self._task_loss(name, loss, loss_options or {})
        self._change([*self._parts.values(), part], lambda: self.balancer.add_task(name))

    def remove_task(self, name: str) -> None:
        """One task less. What is known of the others stays, and they share its weight in proportion."""
        self._change(
            [part for part in self._parts.values() if part.task != name], lambda: self.balancer.remove_task(name)
        )

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take a saved state. A state of other tasks, of other kinds or of other losses changes nothing."""
        own = self.state_dict()
        expected, saved = (set(state) - {_EXTRA} for state in (own, state_dict))
        if _EXTRA in state_dict:
            self.set_extra_state(state_dict[_EXTRA])
        memory = {name.removeprefix(_MEMORY): own for name, own in state_dict.items() if name.startswith(_MEMORY)}
        if _EXTRA in memory:  # it knows the method, the tasks and the options
            self.balancer.memory.check(memory)
        sized = [name for name in saved & expected if not (name.endswith(_EXTRA) or nn.parameter.is_lazy(own[name]))]
        differing = [name for name in sized if getattr(state_dict[name], "shape", None) != own[name].shape]
        if differing or (strict and saved != expected):
            lacking, unexpected = sorted(expected - saved), sorted(saved - expected)
            raise ValueError(
                f"state is of other tasks or losses: missing {lacking[:3]}, unexpected {unexpected[:3]}, of another "
                f"shape {differing[:3]}; make the MultiTaskLoss as the one that was saved"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def get_extra_state(self) -> Tensor:
        """The kinds of the tasks, as a tensor of bytes: some checkpoint formats hold tensors and nothing else."""
        return torch.frombuffer(bytearray(json.dumps(self.kinds).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Compare the kinds of a state with those of the tasks; a ValueError where one differs."""
        kinds = json.loads(bytes(state.tolist()))
        for task, kind in self.kinds.items():
            if kinds.get(task, kind) != kind:
                saved, own = (name or "a loss of its own" for name in (kinds[task], kind))
                raise ValueError(
                    f"state has task {task!r} as {saved}, here it is {own}; make the MultiTaskLoss as the one that was "
                    "saved"
                )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        # States of earlier versions have no kinds: those of the tasks stand for them.
        state_dict.setdefault(prefix + _EXTRA, self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """The tasks, each with its kind or its loss."""
        return ", ".join(f"{task}: {part.kind or part.training_loss}" for task, part in self._parts.items())

    def _task_loss(self, task: str, loss: str | Loss, options: Mapping[str, Any]) -> TaskLoss:
        return TaskLoss(task, loss, self.robust, self.balancer.pool, options).to(self.balancer.device)

    def _change(self, parts: Sequence[TaskLoss], change: Callable[[], None]) -> None:
        """Change the tasks of the balancer, then take these parts; where that fails, nothing has changed."""
        before = dict(self._likelihoods)
        self._likelihoods.clear()
        self._likelihoods |= likelihoods({part.task: part.training_loss for part in parts})
        try:
            change()
        except BaseException:
            self._likelihoods.clear()
            self._likelihoods |= before
            raise
        self._take(parts)

    def _take(self, parts: Iterable[TaskLoss]) -> None:
        self._parts = {part.task: part for part in parts}
        self._compute: Compute = RecordedLosses() if self.balancer.engine.recorded_on else stacked_losses
        # In the order of tasks: a name may have a dot in it. That the names agree, the balancer's state sees to.
        self.task_losses = nn.ModuleList(self._parts.values())

    def _divided(
        self, outputs: Any, targets: Any, mask: Any, micro_batches: int
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """As `by_task`, with the losses divided by the number of micro-batches."""
        if not micro_batches >= 1:
            raise ValueError(f"micro_batches must be at least 1, found {micro_batches!r}")
        losses, masks = self.by_task(outputs, targets, mask)
        if micro_batches > 1:
            losses = {task: loss / micro_batches for task, loss in losses.items()}
        return losses, masks

    def _values_by_task(
        self, outputs: Any, targets: Any, mask: Any, fill: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Task -> output, and task -> target in the form of its kind, for the tasks that have labels.

        `fill`: also for the others, with targets that are missing throughout.
        """
        predictions, labels = self._values("outputs", outputs), self._values("targets", targets)
        masks = {} if mask is None else self._values("mask", mask)
        for task, part in self._parts.items():
            output, target = predictions.get(task), labels.get(task)
            if output is None and target is None:
                continue
            if output is None:
                raise ValueError(f"outputs has no task {task!r}, which targets has; leave it out of both")
            # Where the other processes may have labels, they would wait for this one to compute the loss.
            if target is None and (fill or learns_with_others(part)):
                target = part.without_labels(output, self.ignore)
            if target is not None:
                predictions[task], labels[task] = part.labels(output, target, masks.get(task), self.ignore)
        return predictions, labels

    def _values(self, argument: str, values: Any) -> dict[str, Tensor]:
        """Task -> tensor, for the tasks that have one."""
        if isinstance(values, Tensor):
            count = len(self.tasks)
            return {task: column(argument, values, place, count) for place, task in enumerate(self.tasks)}
        if isinstance(values, Mapping):
            # A model may return more than tasks; a label without a task is a mistake, but for a Hugging Face output.
            if argument != "outputs" and not is_dataclass(values):
                self._check_known(argument, values)
            of_tasks = {task: values.get(task) for task in self.tasks}
        else:
            of_tasks = {task: getattr(values, task, None) for task in self.tasks}
        present = {task: value for task, value in of_tasks.items() if value is not None}
        for task, value in present.items():
            if not hasattr(value, "__array__"):
                raise ValueError(f"{argument}[{task!r}] must be a tensor, found {type(value).__name__}")
        if not present:
            raise ValueError(
                f"{argument} has no task in it; pass a dict or an object with at least one of {list(self.tasks)}, or "
                f"a tensor [batch, {len(self.tasks)} tasks, ...], found {type(values).__name__}"
            )
        return {task: torch.as_tensor(value) for task, value in present.items()}

    def _check_known(self, argument: str, values: Mapping[Any, Any]) -> None:
        unknown = [name for name in values if name not in self.tasks]
        if unknown:
            raise ValueError(f"{argument} names unknown task {unknown[0]!r}; the tasks are {list(self.tasks)}")
