"""What becomes of a sweep, and who is told on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from excessmtl.lab.runs.config import RunConfig


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished: why, in one line, and what the machine says about it at length."""

    config: RunConfig
    reason: str
    details: str


@dataclass(frozen=True)
class Outcome:
    """What became of the runs of a sweep."""

    finished: tuple[RunConfig, ...]
    """Now."""
    before: tuple[RunConfig, ...]
    """Finished already when the sweep began."""
    failed: tuple[Failure, ...]


class SweepWatcher:
    """Told what happens, as it happens; does nothing itself."""

    def on_start(self, todo: Sequence[RunConfig], before: int, jobs: int) -> None:
        """Before the first run: what is to do, how many runs are finished already, how many go at a time."""

    def on_finished(self, config: RunConfig, summary: dict[str, Any], seconds: float) -> None:
        """After each run."""

    def on_failed(self, failure: Failure) -> None:
        """After each run that is given up."""

    def on_death(self, config: RunConfig, reason: str) -> None:
        """The worker of a run has died; the run will be tried again."""
