"""Label noise in the page: what `excessmtl diagnose RUN --save` has left in the folders of the runs."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from excessmtl.diagnosis import Report
from excessmtl.files import read_text, write_whole
from excessmtl.lab.compare.courses import is_plain_file
from excessmtl.lab.data.base import Split
from excessmtl.lab.reports.pictures import samples_of, thumbnail
from excessmtl.lab.schema import Number, Word, checked, shortened

if TYPE_CHECKING:
    from excessmtl.lab.training.cost_to_others import Conflict

FILE = "diagnosis.json"
MOST_RUNS, MOST_SUSPECTS = 20, 20
Score = Number | None


def _picture(address: Any) -> str:
    """A page loads nothing from elsewhere: whoever made the file would learn who reads it."""
    if isinstance(address, str) and re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/]+=*", address):
        return address
    words = "a picture that the address itself holds (data:image/png;base64,...)"
    raise ValueError(f"picture of a suspect must be {words}, found {shortened(address)}")


class _Part(BaseModel):
    """A part of diagnosis.json."""

    model_config = ConfigDict(strict=True)


class _Label(_Part):
    sample: Number
    label: Number
    predicted: Number
    margin: Number
    noise_probability: Number
    row: Number = 0
    id: Word = ""
    picture: Annotated[str, BeforeValidator(_picture)] = ""


class _Task(_Part):
    task: Word
    verdict: Word
    reason: Word
    noise_rate: Score
    loss: Score
    floor: Score
    excess_risk: Score
    noise_rate_interval: Annotated[list[Number], Field(min_length=2, max_length=2)] | None
    suspects: list[_Label]


class _Conflict(_Part):
    tasks: list[Word]
    cosines: list[list[Score]]

    @model_validator(mode="after")
    def _square(self) -> Self:
        if {len(self.tasks)} != {len(self.cosines), *map(len, self.cosines)}:
            raise ValueError("cosines of conflict must have a row and a column for each of its tasks")
        return self


class _Diagnosis(_Part):
    tasks: list[_Task]
    conflict: _Conflict | None = None


_BADGES = {"clean": "good", "noisy": "bad", "suspect": "warn"}


@dataclass(frozen=True)
class Gauge:
    """One task: numbers in percent of the gauge's width, texts as they are shown."""

    task: str
    verdict: str
    badge: str
    reason: str
    rate: float | None
    low: float
    high: float
    floor: float
    """Its share of the held-out loss."""
    texts: dict[str, str]
    suspects: list[dict[str, Any]]


@dataclass(frozen=True)
class DiagnosedRun:
    """A run and its tasks."""

    name: str
    gauges: list[Gauge]
    conflict: list[tuple[str, list[str]]]
    """Task -> the cosines of its gradient with those of all tasks, as they are shown."""


def save(report: Report, run: Path, split: Split | None = None, conflict: "Conflict | None" = None) -> Path:
    """Keep a report in the folder of its run; the file.

    `split`: whose samples the report is about; where they are pictures, those of the suspicious labels are kept too.
    `conflict`: between the gradients of the tasks.
    """
    tasks = [{**task.to_dict(), "suspects": _suspects(report, task.task, split)} for task in report.tasks]
    found = {"tasks": tasks, "conflict": None if conflict is None else asdict(conflict)}
    write_whole(run / FILE, json.dumps(found, indent=1, allow_nan=False).encode() + b"\n")
    return run / FILE


def _suspects(report: Report, task: str, split: Split | None) -> list[dict[str, Any]]:
    pictures = None if split is None else samples_of(split, report.held_out[task])
    ranked = report.suspects(task, MOST_SUSPECTS)
    found = [{name: value for name, value in vars(one).items() if value is not None} for one in ranked]
    return found if pictures is None else [{**one, "picture": thumbnail(pictures[one["sample"]])} for one in found]


def diagnoses_in(folder: Path) -> list[DiagnosedRun]:
    """The runs below a folder whose diagnosis was kept, the first of them by name."""
    paths = sorted(path for path in folder.rglob(FILE) if is_plain_file(path, folder))
    return [_diagnosed(path, _name(path, folder)) for path in paths[:MOST_RUNS]]


def _name(path: Path, folder: Path) -> str:
    place = str(path.parent.relative_to(folder))
    return folder.resolve().name if place == "." else place


def _diagnosed(path: Path, name: str) -> DiagnosedRun:
    try:
        diagnosis = checked(_Diagnosis, json.loads(read_text(path)), "it")
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); write it again with excessmtl diagnose {path.parent} --save"
        ) from error
    conflict = diagnosis.conflict or _Conflict(tasks=[], cosines=[])
    cosines = [["–" if value is None else f"{value:.2f}" for value in row] for row in conflict.cosines]
    return DiagnosedRun(
        name, [_gauge(task) for task in diagnosis.tasks], list(zip(conflict.tasks, cosines, strict=True))
    )


def _gauge(task: _Task) -> Gauge:
    rate, loss, floor = task.noise_rate, task.loss, task.floor
    low, high = task.noise_rate_interval or (0.0, 0.0)
    numbers = {"loss": loss, "floor": floor, "excess_risk": task.excess_risk}
    texts = {
        "rate": "–" if rate is None else f"{rate:.2f}",
        "interval": "" if rate is None else f"{low:.2f} to {high:.2f}",
        **{name: "–" if value is None else f"{value:.3g}" for name, value in numbers.items()},
    }
    return Gauge(
        task.task,
        task.verdict,
        _BADGES.get(task.verdict, ""),
        task.reason,
        None if rate is None else _percent(rate),
        _percent(low),
        _percent(high),
        _percent(floor / loss) if loss and floor else 0.0,
        texts,
        [_suspect(label) for label in task.suspects],
    )


def _suspect(label: _Label) -> dict[str, str]:
    """The numbers of one label as they are shown, and its picture."""
    given = {name: getattr(label, name) for name in _Label.model_fields if name in label.model_fields_set}
    return {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in given.items()}


def _percent(share: float) -> float:
    return round(100 * min(max(float(share), 0.0), 1.0), 1)
