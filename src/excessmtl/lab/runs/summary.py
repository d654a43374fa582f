"""The end of a run in one small table of numbers (summary.json): writing it, and reading it back."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Strict, model_validator

from excessmtl.files import read_text
from excessmtl.lab.data.noise import UNIFORM
from excessmtl.lab.data.tasks import PLAIN as PLAIN_LOSS
from excessmtl.lab.data.tasks import SHARE
from excessmtl.lab.runs.record import NOT_RECORDED, RunRecord
from excessmtl.lab.schema import Number, Options, Word, checked, explained, mapping

Row = dict[str, float]
"""Of metrics.csv: the numbers of an epoch."""
QUANTITIES = ("weights", "losses", "excess_risks")
"""Of every step and task, as steps.npz has them: the first rows of `Step.numbers`."""
LAST_K = 5
"""How many last epochs `mean_scores` averages over."""
_UNITS = {
    **dict.fromkeys(("accuracy", "pixel_accuracy", "miou", "within_11.25", "within_22.5", "within_30"), SHARE),
    **dict.fromkeys(("nmse", "rel_error"), "ratio"),
}
"""Of metrics, for runs whose summary names no units."""
Scores = dict[Word, Number | None]


class Summary(BaseModel):
    """What is read back of a summary: the columns of a table of runs, in this order.

    The defaults stand for what runs of older versions do not say.
    """

    model_config = ConfigDict(strict=True, extra="ignore")

    benchmark: Word
    source: Word
    label: Word
    code: Word = NOT_RECORDED
    method: Word
    loss: Word = PLAIN_LOSS
    noise: Number
    noise_kind: Word = UNIFORM
    seed: int
    epochs: int
    optimiser: Word = NOT_RECORDED
    learning_rate: Number | None = None
    weight_decay: Number | None = None
    clean_score: Number | None = None
    noisy_score: Number | None = None
    overall_score: Number | None = None
    validation_error: Number | None = None
    chosen_epoch: Number | None = None
    chosen_validation_error: Number | None = None
    clean_weight: Number | None = None
    seconds_per_step: Number | None = None
    options: Options
    method_options: Options = {}
    settings: Options = {}
    noisy_tasks: Annotated[list[Word], Strict(True)]
    primary_metric: dict[Word, Word]
    higher_is_better: dict[Word, bool]
    units: dict[Word, str] = {}
    scores: Scores
    mean_scores: Scores
    metrics: Scores
    weights: Scores | None = None
    chosen_scores: Scores | None = None

    @model_validator(mode="after")
    def _of_the_same_tasks(self) -> Self:
        self.units = self.units or {task: _UNITS.get(name, "") for task, name in self.primary_metric.items()}
        for name in ("primary_metric", "higher_is_better", "units"):
            tasks = getattr(self, name).keys()
            if tasks != self.scores.keys():
                raise ValueError(f"{name} must name the tasks of scores, {sorted(self.scores)}, found {sorted(tasks)}")
        return self


_COLUMNS = tuple(Summary.model_fields)
PLAIN, NESTED = _COLUMNS[: _COLUMNS.index("options")], _COLUMNS[_COLUMNS.index("options") :]
"""Columns with one plain value per run, and those with a list or a mapping, which are JSON in a CSV file."""
TEXTS = tuple(name for name in PLAIN if Summary.model_fields[name].annotation is str)


def columns_of(summary: Any, where: str) -> dict[str, Any]:
    """The columns of a run, checked; `where` names the file of the summary, or of the table, in errors."""
    known = {name: value for name, value in mapping(summary, where).items() if value is not None}
    try:
        return vars(checked(Summary, known, "the summary"))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_json(path: Any) -> Any:
    """What a JSON file holds."""
    with explained(f"{path} is not JSON", "delete the run or make it again", ValueError, RecursionError):
        return json.loads(read_text(path))


class Scored(NamedTuple):
    """How a task is scored: the name of the metric, its direction and its unit."""

    name: str
    higher_is_better: bool
    unit: str

    @property
    def is_share(self) -> bool:
        """Whether it lies between 0 and 1; it is then shown in percent, and differences are in points."""
        return self.unit == SHARE

    @property
    def shown_unit(self) -> str:
        """Of the numbers in a table; empty where it is not worth a word."""
        return "%" if self.is_share else "" if self.unit == "ratio" else self.unit


def summarise(
    record: RunRecord,
    tasks: Mapping[str, Scored],
    rows: Sequence[Row],
    weights: np.ndarray | None,
    seconds_per_step: float,
    *,
    validation_errors: Sequence[float] = (),
    completed: bool = True,
) -> dict[str, Any]:
    """Scores of the last epoch, and those of the epoch that the validation split chooses; never of the best one.

    What is not finite, in a run that has diverged, is None: JSON has no such numbers.

    `weights`: [steps, m] of the last epoch; None where every task is trained alone. `validation_errors`: of each epoch,
    NaN where there is none. Without them no epoch is chosen.
    """
    about = record.columns
    noisy = list(about["noisy_tasks"])
    chosen = chosen_epoch(validation_errors)
    chosen_scores = None if chosen is None else _scores(rows[chosen], tasks)
    recent = [_scores(row, tasks) for row in rows[-LAST_K:]]
    share = None if weights is None else _mean_weights(weights, list(tasks))
    summary: dict[str, Any] = {
        **about,
        "epochs": len(rows),
        "primary_metric": {task: scored.name for task, scored in tasks.items()},
        "higher_is_better": {task: scored.higher_is_better for task, scored in tasks.items()},
        "units": {task: scored.unit for task, scored in tasks.items()},
        "scores": recent[-1],
        "mean_scores": {task: float(np.mean([scores[task] for scores in recent])) for task in tasks},
        "mean_scores_epochs": len(recent),
        "metrics": {name.removeprefix("test/"): value for name, value in rows[-1].items() if name.startswith("test/")},
        **_means(recent[-1], tasks, noisy),
        "validation_scores": _scores(rows[-1], tasks, "validation"),
        "validation_error": validation_errors[-1] if validation_errors else None,
        "chosen_epoch": chosen,
        "chosen_validation_error": None if chosen is None else validation_errors[chosen],
        "chosen_scores": chosen_scores,
        **_means(chosen_scores, tasks, noisy, "chosen_"),
        "weights": share,
        "clean_weight": None if share is None else sum(share[task] for task in tasks if task not in noisy),
        "seconds_per_step": seconds_per_step,
        "completed": completed,
    }
    return {name: _finite(value) for name, value in summary.items()}


def chosen_epoch(validation_errors: Sequence[float]) -> int | None:
    """The first epoch of the lowest validation error; None where no epoch has one."""
    known = [epoch for epoch, error in enumerate(validation_errors) if math.isfinite(error)]
    return min(known, key=lambda epoch: validation_errors[epoch]) if known else None


def _scores(row: Row, tasks: Mapping[str, Scored], part: str = "test") -> dict[str, Any]:
    return {task: row.get(f"{part}/{task}/{scored.name}", math.nan) for task, scored in tasks.items()}


def _means(
    scores: Mapping[str, float] | None, tasks: Mapping[str, Scored], noisy: Sequence[str], prefix: str = ""
) -> dict[str, float | None]:
    """Over the clean tasks, the noisy ones and all; None where there are none or they are scored differently."""
    groups = {"clean": [task for task in tasks if task not in noisy], "noisy": noisy, "overall": list(tasks)}
    if scores is None or len({(scored.name, scored.unit) for scored in tasks.values()}) > 1:
        return {f"{prefix}{name}_score": None for name in groups}
    return {
        f"{prefix}{name}_score": float(np.mean([scores[task] for task in own])) if own else None
        for name, own in groups.items()
    }


def _mean_weights(weights: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Mean over the last epoch, on the simplex whatever the method's own scale."""
    mean = np.nanmean(weights, axis=0, dtype=np.float64)
    total = mean.sum()
    shares = mean / total if total else np.full(len(names), 1 / len(names))
    return dict(zip(names, shares.tolist(), strict=True))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(own) for key, own in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
