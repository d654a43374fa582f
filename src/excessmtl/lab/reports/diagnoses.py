"""Label noise in the page: what `excessmtl diagnose RUN --save` has left in the folders of the runs."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from excessmtl.diagnosis import Report
from excessmtl.files import is_plain_file, read_text, write_whole
from excessmtl.lab.data.base import Split
from excessmtl.lab.reports.pictures import samples_of, thumbnail
from excessmtl.lab.schema import Number, Word, checked, explained, shortened

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
    label: Number | Word
    predicted: Number | Word
    margin: Number
    noise_probability: Number
    row: Number | None = None
    id: Word | None = None
    picture: Annotated[str | None, BeforeValidator(_picture)] = None


class _ClassRate(_Part):
    label: Number | Word
    labels: int
    wrong: Number


class _Task(_Part):
    task: Word
    verdict: Word
    reason: Word
    noise_rate: Score
    loss: Score
    floor: Score
    excess_risk: Score
    noise_rate_interval: Annotated[list[Number], Field(min_length=2, max_length=2)] | None
    class_rates: list[_ClassRate] | None = None
    suspects: list[_Label]


class _Conflict(_Part):
    tasks: list[Word]
    cosines: list[list[Score]]

    @model_validator(mode="after")
    def _square(self) -> Self:
        if {len(self.tasks)} != {len(self.cosines), *map(len, self.cosines)}:
            raise ValueError("cosines of conflict must have a row and a column for each of its tasks")
        return self


class Diagnosis(_Part):
    """What the file says; the template writes it down."""

    tasks: list[_Task]
    conflict: _Conflict | None = None


def save(report: Report, run: Path, split: Split | None = None, conflict: "Conflict | None" = None) -> Path:
    """Keep a report in the folder of its run; the file.

    `split`: whose samples the report is about; where they are pictures, those of the suspicious labels are kept too.
    `conflict`: between the gradients of the tasks.
    """
    tasks = [{**task.to_dict(), "suspects": _suspects(report, task.task, split)} for task in report.with_names()]
    found = {"tasks": tasks, "conflict": None if conflict is None else asdict(conflict)}
    write_whole(run / FILE, json.dumps(found, indent=1, allow_nan=False).encode() + b"\n")
    return run / FILE


def _suspects(report: Report, task: str, split: Split | None) -> list[dict[str, Any]]:
    pictures = None if split is None else samples_of(split, report.held_out[task])
    ranked = report.suspects(task, MOST_SUSPECTS)
    found = [{name: value for name, value in vars(one).items() if value is not None} for one in ranked]
    return found if pictures is None else [{**one, "picture": thumbnail(pictures[one["sample"]])} for one in found]


def diagnoses_in(folder: Path) -> dict[str, Diagnosis]:
    """The runs below a folder whose diagnosis was kept, the first of them by name."""
    paths = sorted(path for path in folder.rglob(FILE) if is_plain_file(path, folder))
    return {_name(path, folder): _read(path) for path in paths[:MOST_RUNS]}


def _name(path: Path, folder: Path) -> str:
    place = str(path.parent.relative_to(folder))
    return folder.resolve().name if place == "." else place


def _read(path: Path) -> Diagnosis:
    advice = f"write it again with excessmtl diagnose {path.parent} --save"
    with explained(f"{path} cannot be read", advice, ValueError, RecursionError):
        return checked(Diagnosis, json.loads(read_text(path)), "it")
