"""What a diagnosis says: a table when printed, plain values for JSON, the most suspicious labels of a task."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excessmtl.aligned import aligned
from excessmtl.diagnosis.classes import ClassRate
from excessmtl.diagnosis.inputs import Array, HeldOut
from excessmtl.diagnosis.suspects import Suspect, suspects
from excessmtl.diagnosis.verdicts import Verdict

Interval = tuple[float, float]
_CLEARLY = 0.1
"""A class is named whose share of wrong labels is by so much above that of the task, and not by chance."""


@dataclass(frozen=True)
class TaskReport:
    """One task. What could not be estimated is None; too little evidence for a rate still has an interval."""

    task: str
    verdict: Verdict
    """"clean", "suspect", "noisy", "not learned yet" or "too little evidence"."""
    reason: str
    """Why, in one sentence."""
    advice: str
    """What to do about it."""
    noise_rate: float | None = None
    """Classes: the share of labels drawn anew from all classes that leaves as many wrong ones as there are. Numbers:
    the share of labels that are exchanged, or have an error as large as the target's spread or larger."""
    noise_rate_interval: Interval | None = None
    wrong_labels: float | None = None
    """Classes: the share of labels that are wrong, the noise rate times (K - 1) / K. Numbers: the noise rate."""
    class_rates: tuple[ClassRate, ...] | None = None
    """Of every class: how many samples have its label, and the share of these labels that is wrong."""
    floor: float | None = None
    """The part of the held-out loss that the noise alone explains: cross-entropy in nats, or squared error."""
    floor_interval: Interval | None = None
    loss: float | None = None
    """The held-out loss."""
    excess_risk: float | None = None
    """What is left above the floor."""
    skill: float | None = None
    """The share of the errors (classes) or of the variance (numbers) of a constant prediction that is gone; of two
    classes 2 AUROC - 1."""
    samples: int = 0
    """With a label and a finite prediction."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON knows."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @property
    def worst_classes(self) -> list[ClassRate]:
        """The classes whose labels are clearly worse than those of the task, the worst first."""
        usual = self.wrong_labels or 0.0
        worse = [
            own
            for own in self.class_rates or ()
            if own.wrong - usual > max(_CLEARLY, 2 * math.sqrt(own.wrong * (1 - own.wrong) / own.labels))
        ]
        return sorted(worse, key=lambda own: -own.wrong) if self.verdict in ("noisy", "suspect") else []


@dataclass(frozen=True)
class Report:
    """All tasks; `report["price"]` is one of them."""

    tasks: Sequence[TaskReport]
    held_out: Mapping[str, HeldOut] = field(default_factory=dict, repr=False)
    """Task -> what the diagnosis was made from; empty for a live one."""
    file_rows: Sequence[int] | None = field(default=None, repr=False)
    """Where the samples are rows of a table: which row each of them is; 0 is the first below the header."""
    ids: Sequence[str] | None = field(default=None, repr=False)
    """Where the rows of the table have names: the name of each sample."""
    originals: Mapping[str, Callable[[float], float | str]] = field(default_factory=dict, repr=False)
    """Task -> from a label as the model knows it to what the table has: the name of a class, a number in its unit."""

    def __getitem__(self, task: str) -> TaskReport:
        for found in self.tasks:
            if found.task == task:
                return found
        raise KeyError(f"unknown task {task!r}; the tasks are {[found.task for found in self.tasks]}")

    def suspects(self, task: str, most: int | None = 20) -> list[Suspect]:
        """The labels of a task that are most likely to be wrong, the most suspicious first; `most=None`: all labels."""
        if most is not None and most < 0:
            raise ValueError(f"most must be a number of labels from 0, or None for all, found {most}")
        rate = self[task].noise_rate
        ranked = suspects(self._held_out(task), rate or 0.0)[:most]
        if self.file_rows is not None:
            ranked = [replace(label, row=self.file_rows[label.sample]) for label in ranked]
        if self.ids is not None:
            ranked = [replace(label, id=self.ids[label.sample]) for label in ranked]
        if original := self.originals.get(task):
            ranked = [
                replace(one, label=original(float(one.label)), predicted=original(float(one.predicted)))
                for one in ranked
            ]
        return ranked

    def out_of_sample(self, task: str) -> tuple[NDArray[np.int64], Array]:
        """Labels [n] and class probabilities [n, classes] of a task, as cleanlab and its like take them.

        Samples without a label are left out.
        """
        found = self._held_out(task)
        if found.kind == "regression":
            raise ValueError(f"task {task!r} is a regression and has no class probabilities; name another task")
        return found.targets.astype(np.int64), np.exp(found.predictions)

    def _held_out(self, task: str) -> HeldOut:
        _ = self[task]  # says so where there is no such task
        if task not in self.held_out:
            raise ValueError(
                f"there are no predictions of task {task!r} in this report; make one with excessmtl.diagnose("
                "predictions, targets)"
            )
        return self.held_out[task]

    def with_names(self) -> list[TaskReport]:
        """The tasks, with the names of their classes where the table has names."""
        named = []
        for task in self.tasks:
            original = self.originals.get(task.task)
            if original and task.class_rates:
                rates = tuple(replace(own, label=original(float(own.label))) for own in task.class_rates)
                task = replace(task, class_rates=rates)
            named.append(task)
        return named

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON knows."""
        return {"tasks": [task.to_dict() for task in self.with_names()]}

    def __str__(self) -> str:
        """A table with a line per task, the reasons for every verdict but "clean", and the classes that are worst."""
        table: dict[str, list[str]] = {
            "task": [task.task for task in self.tasks],
            "verdict": [str(task.verdict) for task in self.tasks],
            "noise rate": ["-" if task.noise_rate is None else f"{task.noise_rate:.2f}" for task in self.tasks],
            "interval": [_shown_interval(task.noise_rate_interval) for task in self.tasks],
            "loss": [_shown(task.loss) for task in self.tasks],
            "floor": [_shown(task.floor, task.loss) for task in self.tasks],
            "excess risk": [_shown(task.excess_risk) for task in self.tasks],
            "samples": [str(task.samples) for task in self.tasks],
        }
        reasons = [f"{task.task}: {task.reason}" for task in self.tasks if task.verdict != "clean"]
        worst = [
            f"{task.task}: of {own.labels} labels of class {_shown_class(own.label)}, about {own.wrong:.0%} are wrong "
            f"(of all labels {task.wrong_labels:.0%})"
            for task in self.with_names()
            for own in task.worst_classes
        ]
        return "\n".join([aligned(table, ("task", "verdict")), *reasons, *worst])


def _shown(number: float | None, unit: float | None = None) -> str:
    """Three digits; what is next to nothing beside `unit` is 0."""
    if number is None or not math.isfinite(number):
        return "-"
    return "0" if unit is not None and abs(number) < 1e-3 * abs(unit) else f"{number:.3g}"


def _shown_class(label: float | str) -> str:
    return label if isinstance(label, str) else f"{label:g}"


def _shown_interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
