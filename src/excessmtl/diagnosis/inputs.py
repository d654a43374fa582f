"""Held-out predictions and labels as users have them, checked and in one form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from excessmtl.warn import warn

Kind = Literal["classification", "binary", "regression"]
KINDS: tuple[str, ...] = get_args(Kind)
Array = NDArray[np.float64]
_BFLOAT16, _TWO_DECIMALS = 0.05, 0.005
"""By so much may the sum of rounded probabilities miss one, and a probability its value."""
_MOST_MISSED = 0.5  # however many classes there are: beyond it the sum would tell nothing
_EXACT = 1e-3
"""Sums that miss one by no more are not visibly rounded."""
_LARGEST = 1e100
"""The squares of larger numbers are too large to be summed."""
_MOST_CLASSES = 100
"""Whole numbers of more different values are taken for counts, not for classes."""


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
        large = found[np.isfinite(found) & (np.abs(found) > _LARGEST)]
        if large.size:
            raise ValueError(
                f"{name}[{task!r}] must hold numbers up to {_LARGEST:g}, found {large[0]:.3g}; take another unit, or "
                "NaN where there is none"
            )
    if values.ndim == 2 and values.shape[1] > 1 and labels.ndim == 2 and labels.shape[-1] == 1:
        labels = labels.reshape(-1)
    chosen: Kind = kind or _inferred(values, labels, ignore)
    if kind != "regression":
        _refuse_hard_predictions(task, values, labels[_labelled(labels, ignore)])
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
        raise TypeError(
            f"{argument}[{task!r}] must be a tensor or an array of numbers, found {value!r:.60}; number classes from 0"
        ) from None
    if found.ndim not in (1, 2):
        raise ValueError(
            f"{argument}[{task!r}] must be [samples] or [samples, outputs], found shape {found.shape}; of maps or "
            "sequences, pass the labelled positions as samples"
        )
    return found


def _labelled(labels: Array, ignore: int) -> NDArray[np.bool_]:
    """Which labels of a classification are there: NaN, -1 and `ignore` mark missing ones, unless they are -1 and +1."""
    given: NDArray[np.bool_] = ~np.isnan(labels) & (labels != ignore)
    return given if _are_signs(labels[given]) else given & (labels != -1)


def _are_signs(known: Array) -> bool:
    """Whether the labels are -1 and +1, which many tools write for two classes."""
    return set(np.unique(known)) == {-1.0, 1.0}


def _inferred(values: Array, labels: Array, ignore: int) -> Kind:
    """The kind of a task whose user did not say it, from the labels that are there."""
    if labels.ndim == 1 and values.ndim == 2 and values.shape[1] > 1:
        return "classification"
    known = labels[_labelled(labels, ignore)]
    return "binary" if len(known) and (_are_signs(known) or bool(np.isin(known, (0, 1)).all())) else "regression"


def _refuse_hard_predictions(task: str, values: Array, known: Array) -> None:
    """A ValueError for class numbers in place of scores: they do not say how sure the predictions are."""
    if values.ndim == 2 and values.shape[1] > 1:
        return
    names, predicted = np.unique(known), np.unique(values[np.isfinite(values)])
    few = 1 < len(names) <= _MOST_CLASSES and bool((names == np.round(names)).all())
    if few and len(predicted) > 1 and bool(np.isin(predicted, names).all()):
        raise ValueError(
            f"predictions[{task!r}] holds the class numbers {predicted[:5].tolist()} and no scores; pass logits or "
            "probabilities, [samples] for two classes and [samples, classes] for more, or kinds='regression' if these "
            "are numbers"
        )


def _classes(task: str, kind: Kind, values: Array, labels: Array, ignore: int, argument: str) -> HeldOut:
    if kind == "binary":
        if values.ndim == 2 and values.shape[1] > 2:
            raise ValueError(
                f"predictions[{task!r}] must be one logit per sample for kind 'binary', or one output for each of its "
                f"two classes, found shape {values.shape}; take kind 'classification' for more classes"
            )
        if values.ndim == 1 or values.shape[1] == 1:
            values = _of_two_classes(task, values.reshape(len(values)))
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(
            f"predictions[{task!r}] must be [samples, classes] for kind 'classification', found shape {values.shape}"
        )
    labels = labels.reshape(len(labels), -1)
    if labels.shape[1] != 1:
        raise ValueError(f"{argument}[{task!r}] must be one class number per sample, found shape {labels.shape}")
    numbers = labels.reshape(-1)
    labelled = _labelled(numbers, ignore)
    if kind == "binary" and _are_signs(numbers[labelled]):
        numbers = np.where(labelled, (numbers + 1) / 2, numbers)
    wrong = labelled & ~np.isin(numbers, np.arange(values.shape[1]))
    if wrong.any():
        raise ValueError(
            f"{argument}[{task!r}] must hold class numbers from 0 to {values.shape[1] - 1}, found "
            f"{numbers[wrong][0]:g}; mark missing labels with NaN, -1 or ignore={ignore}"
        )
    finite = np.isfinite(np.where(values == -np.inf, 0, values)).all(1)
    rows = np.flatnonzero(labelled & finite)
    logs = _log_probabilities(values[rows])
    return HeldOut(task, kind, logs, numbers[rows], rows, int((~labelled).sum()), int((labelled & ~finite).sum()))


def of_both_classes(logits: Tensor) -> Tensor:
    """[n, 2]: an output per class, from what is known to be one logit per sample; other shapes stay as they are.

    Were all logits from 0 to 1, they would pass for probabilities.
    """
    if logits.numel() != len(logits):
        return logits
    return torch.stack([-logits.reshape(-1) / 2, logits.reshape(-1) / 2], dim=1)


def _of_two_classes(task: str, values: Array) -> Array:
    """[n, 2] logarithms of the probabilities, from logits or, where all values lie from 0 to 1, from probabilities."""
    values = np.where(np.isfinite(values), values, np.nan)
    finite = values[np.isfinite(values)]
    if len(np.unique(finite)) > 1 and finite.min() >= 0 and finite.max() <= 1:
        warn(
            f"the predictions of {task!r} lie from 0 to 1 and are taken for probabilities; if they are logits, give a "
            "score for each of the two classes"
        )
        shares = np.clip(values, 1e-12, 1 - 1e-12)
        return np.stack([np.log1p(-shares), np.log(shares)], axis=1)
    with np.errstate(invalid="ignore"):  # predictions that are missing
        return np.stack([-np.logaddexp(0, values), -np.logaddexp(0, -values)], axis=1)


def _log_probabilities(values: Array) -> Array:
    """Of rows of probabilities or of logits; rows that are not negative and sum to one, rounded, are probabilities."""
    missed = np.abs(values.sum(1) - 1).max(initial=0.0)
    in_range = len(values) > 0 and values.min() >= 0 and values.max() <= 1 + _BFLOAT16
    if in_range and missed <= min(max(_BFLOAT16, _TWO_DECIMALS * values.shape[1]), _MOST_MISSED):
        # What was rounded to 0 is about half of the smallest that was not.
        least = 1e-12 if missed <= _EXACT else values.min(initial=1, where=values > 0) / 2
        logits: Array = np.log(np.maximum(values, max(least, 1e-12)))
    else:
        logits = np.maximum(values, -_LARGEST)
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
