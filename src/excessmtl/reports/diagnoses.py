"""Label noise in the page: what `excessmtl diagnose RUN --save` has left in the folders of the runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from excessmtl.analysis.courses import is_plain_file
from excessmtl.diagnosis import Report
from excessmtl.files import write_whole

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


def save(report: Report, run: Path) -> Path:
    """Keep a report in the folder of its run; the file."""
    tasks = [
        {**task.to_dict(), "suspects": [vars(one) for one in report.suspects(task.task, MOST_SUSPECTS)]}
        for task in report.tasks
    ]
    write_whole(run / FILE, json.dumps({"tasks": tasks}, indent=1, allow_nan=False).encode() + b"\n")
    return run / FILE


def diagnoses_in(folder: Path) -> list[DiagnosedRun]:
    """The runs below a folder whose diagnosis was kept, the first of them by name."""
    paths = sorted(path for path in folder.rglob(FILE) if is_plain_file(path, folder))
    return [DiagnosedRun(_name(path, folder), _gauges(path)) for path in paths[:MOST_RUNS]]


def _name(path: Path, folder: Path) -> str:
    place = str(path.parent.relative_to(folder))
    return folder.resolve().name if place == "." else place


def _gauges(path: Path) -> list[Gauge]:
    try:
        return [_gauge(task) for task in json.loads(path.read_text(encoding="utf-8"))["tasks"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read ({error!r}); write it again with excessmtl diagnose {path.parent} --save"
        ) from error


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
