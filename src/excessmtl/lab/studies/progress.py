"""What a person sees of a sweep: a line for every run that ends, and on a terminal a bar below them."""

from collections.abc import Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from excessmtl.lab.data.noise import UNIFORM
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.studies.sweep import Failure, SweepWatcher

_SHOWN = 4
"""Tasks whose scores are in the line of a run."""


class SweepProgress(SweepWatcher):
    """Prints as runs end; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,  # elsewhere a bar would be noise; the lines say as much
            speed_estimate_period=1e6,  # seconds: a run may take hours
        )
        self.bar.add_task("")
        (self.task,) = self.bar.tasks

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def on_start(self, todo: Sequence[RunConfig], before: int, jobs: int) -> None:
        """How much there is to do. A study that tunes starts twice."""
        if todo:
            known = f", {before} are finished already" if before else ""
            self._print(f"{len(todo)} runs to do{known}; {min(jobs, len(todo))} at a time")
        else:
            self._print(f"nothing to do, all {before} runs are finished")
        self.bar.reset(self.task.id, total=len(todo))

    def on_finished(self, config: RunConfig, summary: dict[str, Any], seconds: float) -> None:
        """Scores of the run."""
        scores = [
            f"{task} {'diverged' if score is None else f'{score:.4f}'}" for task, score in summary["scores"].items()
        ]
        self._end(config, ", ".join(scores[:_SHOWN]) + (", ..." if len(scores) > _SHOWN else ""))

    def on_failed(self, failure: Failure) -> None:
        """Why it failed."""
        self._end(failure.config, f"FAILED: {failure.reason}")

    def on_death(self, config: RunConfig, reason: str) -> None:
        """The sweep goes on."""
        self._print(f"{described(config)}: its worker died ({reason}); it will go on from its checkpoint")

    def _end(self, config: RunConfig, news: str) -> None:
        self.bar.advance(self.task.id)
        self._print(f"{self.task.completed:.0f}/{self.task.total:.0f}  {described(config)}: {news}")

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


def described(config: RunConfig) -> str:
    """A run in a few words."""
    kind = "" if config.noise_kind == UNIFORM else f" ({config.noise_kind})"
    return f"{config.benchmark}, {config.name}, noise {config.noise:g}{kind}, seed {config.seed}"
