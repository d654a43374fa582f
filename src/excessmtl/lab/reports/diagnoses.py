"""Label noise in the page: what `excessmtl diagnose RUN --save` has left in the folders of the runs."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from excessmtl.diagnosis import Report
from excessmtl.files import read_text, write_whole
from excessmtl.lab.compare.courses import is_plain_file
from excessmtl.lab.data.base import Split
from excessmtl.lab.reports.pictures import samples_of, thumbnail
from excessmtl.lab.training.cost_to_others import Conflict
from excessmtl.plain import NAMES, SCORE, TEXT, Kind, mapping, perhaps, shortened

FILE = "diagnosis.json"
MOST_RUNS, MOST_SUSPECTS = 20, 20
_PICTURE = Kind(
    "a picture that the address itself holds (data:image/png;base64,...)",
    lambda value: isinstance(value, str) and re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/]+=*", value) is not None,
)
"""A page loads nothing from elsewhere: whoever made the file would learn who reads it."""
_FINITE = Kind("a finite number", lambda value: value is not None and SCORE.fits(value))
_TASK = {
    **dict.fromkeys(("task", "verdict", "reason"), TEXT),
    **dict.fromkeys(("noise_rate", "loss", "floor", "excess_risk"), SCORE),
    "noise_rate_interval": perhaps(
        Kind("two numbers", lambda value: isinstance(value, list) and list(map(_FINITE.fits, value)) == [True, True])
    ),
}
_SUSPECT = ("sample", "label", "predicted", "margin", "noise_probability")
_COSINES = Kind(
    "rows of numbers",
    lambda value: isinstance(value, list) and all(isinstance(row, list) and all(map(SCORE.fits, row)) for row in value),
)
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


def save(report: Report, run: Path, split: Split | None = None, conflict: Conflict | None = None) -> Path:
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
        found = mapping(json.loads(read_text(path)), "it")
        gauges = [_gauge(mapping(task, "an entry of tasks")) for task in _list(found.get("tasks"), "tasks")]
        return DiagnosedRun(name, gauges, _conflict(found.get("conflict")))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); write it again with excessmtl diagnose {path.parent} --save"
        ) from error


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{key} must be a list, found {shortened(value)}")
    return value


def _conflict(found: Any) -> list[tuple[str, list[str]]]:
    """A row per task."""
    if found is None:
        return []
    content = mapping(found, "conflict")
    tasks = NAMES.checked(content.get("tasks"), "tasks of conflict")
    cosines = _COSINES.checked(content.get("cosines"), "cosines of conflict")
    if {len(tasks)} != {len(cosines), *map(len, cosines)}:
        raise ValueError("cosines of conflict must have a row and a column for each of its tasks")
    return [
        (task, ["–" if value is None else f"{value:.2f}" for value in row])
        for task, row in zip(tasks, cosines, strict=True)
    ]


def _gauge(task: Mapping[str, Any]) -> Gauge:
    for name, kind in _TASK.items():
        kind.checked(task.get(name), name)
    rate, loss, floor = (task[name] for name in ("noise_rate", "loss", "floor"))
    low, high = task["noise_rate_interval"] or (0.0, 0.0)
    texts = {
        "rate": "–" if rate is None else f"{rate:.2f}",
        "interval": "" if rate is None else f"{low:.2f} to {high:.2f}",
        **{name: "–" if task[name] is None else f"{task[name]:.3g}" for name in ("loss", "floor", "excess_risk")},
    }
    return Gauge(
        task["task"],
        task["verdict"],
        _BADGES.get(task["verdict"], ""),
        task["reason"],
        None if rate is None else _percent(rate),
        _percent(low),
        _percent(high),
        _percent(floor / loss) if loss and floor else 0.0,
        texts,
        [_suspect(mapping(label, "an entry of suspects")) for label in _list(task.get("suspects"), "suspects")],
    )


def _suspect(label: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of one label as they are shown, and its picture."""
    for name, value in [*((name, label.get(name)) for name in _SUSPECT), *label.items()]:
        {"picture": _PICTURE, "id": TEXT}.get(name, _FINITE).checked(value, f"{name} of a suspect")
    return {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in label.items()}


def _percent(share: float) -> float:
    return round(100 * min(max(float(share), 0.0), 1.0), 1)
