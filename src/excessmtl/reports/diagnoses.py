"""Label noise in the page: what `excessmtl diagnose RUN --save` has left in the folders of the runs."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from excessmtl.analysis.courses import is_plain_file
from excessmtl.benchmarks.base import Split
from excessmtl.diagnosis import Report
from excessmtl.files import write_whole
from excessmtl.reports.thumbnails import address, pictures_of
from excessmtl.training.cost_to_others import Conflict

FILE = "diagnosis.json"
MOST_RUNS, MOST_SUSPECTS = 20, 20
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
    pictures = None if split is None else pictures_of(split, report.held_out[task])
    ranked = report.suspects(task, MOST_SUSPECTS)
    found = [{name: value for name, value in vars(one).items() if value is not None} for one in ranked]
    return found if pictures is None else [{**one, "picture": address(pictures[one["sample"]])} for one in found]


def diagnoses_in(folder: Path) -> list[DiagnosedRun]:
    """The runs below a folder whose diagnosis was kept, the first of them by name."""
    paths = sorted(path for path in folder.rglob(FILE) if is_plain_file(path, folder))
    return [_diagnosed(path, _name(path, folder)) for path in paths[:MOST_RUNS]]


def _name(path: Path, folder: Path) -> str:
    place = str(path.parent.relative_to(folder))
    return folder.resolve().name if place == "." else place


def _diagnosed(path: Path, name: str) -> DiagnosedRun:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return DiagnosedRun(name, [_gauge(task) for task in found["tasks"]], _conflict(found.get("conflict")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read ({error!r}); write it again with excessmtl diagnose {path.parent} --save"
        ) from error


def _conflict(found: dict[str, Any] | None) -> list[tuple[str, list[str]]]:
    """A row per task."""
    if found is None:
        return []
    rows = [["–" if value is None else f"{value:.2f}" for value in row] for row in found["cosines"]]
    return list(zip(map(str, found["tasks"]), rows, strict=True))


def _gauge(task: dict[str, Any]) -> Gauge:
    rate, loss, floor = (task[name] for name in ("noise_rate", "loss", "floor"))
    low, high = task["noise_rate_interval"] or (0.0, 0.0)
    texts = {
        "rate": "–" if rate is None else f"{rate:.2f}",
        "interval": "" if rate is None else f"{low:.2f} to {high:.2f}",
        **{name: "–" if task[name] is None else f"{task[name]:.3g}" for name in ("loss", "floor", "excess_risk")},
    }
    return Gauge(
        str(task["task"]),
        str(task["verdict"]),
        _BADGES.get(task["verdict"], ""),
        str(task["reason"]),
        None if rate is None else _percent(rate),
        _percent(low),
        _percent(high),
        _percent(floor / loss) if loss and floor else 0.0,
        texts,
        [{name: _short(value) for name, value in one.items()} for one in task["suspects"]],
    )


def _percent(share: float) -> float:
    return round(100 * min(max(float(share), 0.0), 1.0), 1)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
