"""Held-out predictions and labels as users have them, checked and in one form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Kind = Literal["classification", "binary", "regression"]
KINDS: tuple[str, ...] = get_args(Kind)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class HeldOut:
    """What is known of one task: predictions and labels of samples that it was not trained on."""

    task: str
    kind: Kind
    predictions: Array
    """Classes: [n, classes] logarithms of probabilities. Numbers: [n, k]."""
    targets: Array
    """Classes: [n] their numbers. Numbers: [n, k]."""
    rows: NDArray[np.int64]
    """[n] where these samples stood among those that were passed in."""
    unlabelled: int
    """How many had no label."""
    broken: int
    """How many had a label, and a prediction that is not finite."""

    @property
    def samples(self) -> int:
        """How many have a label and a finite prediction."""
        return len(self.rows)


def held_out(predictions: Any, targets: Any, kinds: Any, ignore: int, argument: str = "targets") -> list[HeldOut]:
    """One entry per task, in the order of `predictions`. `argument`: what messages call the labels."""
    for name, value in (("predictions", predictions), (argument, targets)):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a dict from task to a tensor or an array, found {type(value).__name__}")
    if not predictions:
        raise ValueError("predictions is empty; pass the predictions of at least one task")
    for task in (task for task in targets if task not in predictions):
        raise ValueError(f"{argument} has task {task!r}, which predictions has not; the tasks are {list(predictions)}")
    if isinstance(kinds, Mapping):
        for task in (task for task in kinds if task not in predictions):
            raise ValueError(f"kinds has task {task!r}, which predictions has not; the tasks are {list(predictions)}")
    return [
        _of_task(
            task, output, targets.get(task), kinds.get(task) if isinstance(kinds, Mapping) else kinds, ignore, argument
        )
        for task, output in predictions.items()
    ]


def _of_task(task: Any, output: Any, target: Any, kind: Any, ignore: int, argument: str) -> HeldOut:
    if not isinstance(task, str) or not task:
        raise TypeError(f"predictions must have task names as keys, found {task!r}")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kinds[{task!r}] must be one of {list(KINDS)}, found {kind!r}")
    nothing = HeldOut(task, kind or "regression", np.empty((0, 2)), np.empty(0), np.empty(0, np.int64), 0, 0)
    if output is None:
        return nothing
    values = _array("predictions", task, output)
    labels = np.full(len(values), np.nan) if target is None else _array(argument, task, target)
    if len(values) != len(labels):
        raise ValueError(
            f"predictions[{task!r}] has {len(values)} samples and {argument}[{task!r}] has {len(labels)}; pass a label "
            "for each, NaN where there is none"
        )
    if not len(values):
        return nothing
    for name, found in (("predictions", values), (argument, labels)):
        if not found.size:
            raise ValueError(f"{name}[{task!r}] must be [samples] or [samples, outputs], found shape {found.shape}")
    if values.ndim == 2 and values.shape[1] > 1 and labels.ndim == 2 and labels.shape[-1] == 1:
        labels = labels.reshape(-1)
    chosen: Kind = kind or _inferred(values, labels)
    if chosen == "regression":
        return _numbers(task, values, labels, argument)
    return _classes(task, chosen, values, labels, ignore, argument)


def _array(argument: str, task: str, value: Any) -> Array:
    """[n] or [n, k] in double precision, on the host."""
    if isinstance(value, Tensor):
        value = value.detach().to("cpu", torch.float64).numpy()
    try:
        found: Array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{argument}[{task!r}] must be a tensor or an array of numbers, found {value!r:.60}") from None
    if found.ndim not in (1, 2):
        raise ValueError(
            f"{argument}[{task!r}] must be [samples] or [samples, outputs], found shape {found.shape}; of maps or "
            "sequences, pass the labelled positions as samples"
        )
    return found


def _inferred(values: Array, labels: Array) -> Kind:
    known = labels[~np.isnan(labels)]
    whole = bool((known == np.round(known)).all())
    if labels.ndim == 1 and values.ndim == 2 and values.shape[1] > 1:
        return "classification"
    return "binary" if len(known) and whole and bool(np.isin(known, (0, 1)).all()) else "regression"


def _classes(task: str, kind: Kind, values: Array, labels: Array, ignore: int, argument: str) -> HeldOut:
    if kind == "binary":
        if values.ndim == 2 and values.shape[1] != 1:
            raise ValueError(
                f"predictions[{task!r}] must be one logit per sample for kind 'binary', found shape {values.shape}; "
                "take kind 'classification' for one output per class"
            )
        logit = values.reshape(len(values))
        values = np.stack([-np.logaddexp(0, logit), -np.logaddexp(0, -logit)], axis=1)
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(
            f"predictions[{task!r}] must be [samples, classes] for kind 'classification', found shape {values.shape}"
        )
    labels = labels.reshape(len(labels), -1)
    if labels.shape[1] != 1:
        raise ValueError(f"{argument}[{task!r}] must be one class number per sample, found shape {labels.shape}")
    numbers = labels.reshape(-1)
    labelled = ~np.isnan(numbers) & (numbers != ignore) & (numbers != -1)
    wrong = labelled & ~np.isin(numbers, np.arange(values.shape[1]))
    if wrong.any():
        raise ValueError(
            f"{argument}[{task!r}] must hold class numbers from 0 to {values.shape[1] - 1}, found "
            f"{numbers[wrong][0]:g}; mark missing labels with NaN, -1 or ignore={ignore}"
        )
    finite = np.isfinite(values if kind == "binary" else np.where(values == -np.inf, 0, values)).all(1)
    rows = np.flatnonzero(labelled & finite)
    logs = values[rows] if kind == "binary" else _log_probabilities(values[rows])
    return HeldOut(task, kind, logs, numbers[rows], rows, int((~labelled).sum()), int((labelled & ~finite).sum()))


def _log_probabilities(values: Array) -> Array:
    """Of rows of probabilities or of logits; rows that are not negative and sum to one are probabilities."""
    are_shares = len(values) > 0 and bool((values >= 0).all()) and np.allclose(values.sum(1), 1, atol=1e-3)
    logits: Array = np.log(np.maximum(values, 1e-12)) if are_shares else np.maximum(values, -1e30)
    shifted = logits - logits.max(1, keepdims=True, initial=-np.inf)
    found: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


def _numbers(task: str, values: Array, labels: Array, argument: str) -> HeldOut:
    values, labels = values.reshape(len(values), -1), labels.reshape(len(labels), -1)
    if values.shape != labels.shape and not np.isnan(labels).all():
        raise ValueError(
            f"predictions[{task!r}] has shape {values.shape} and {argument}[{task!r}] has {labels.shape}; for kind "
            "'regression' they must be alike"
        )
    labelled = np.isfinite(labels).all(1)
    finite = np.isfinite(values).all(1)
    rows = np.flatnonzero(labelled & finite)
    kept = labels[rows] if labels.shape == values.shape else np.empty((0, values.shape[1]))
    return HeldOut(
        task, "regression", values[rows], kept, rows, int((~labelled).sum()), int((labelled & ~finite).sum())
    )
