"""What a person sees of a sweep: a line for every run that ends, and on a terminal a bar below them."""

from collections.abc import Sequence
from statistics import median
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from excessmtl.lab.data.noise import UNIFORM
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.studies.sweep import Failure, SweepWatcher

_SHOWN = 4
"""Tasks whose scores are in the line of a run."""


class SweepProgress(SweepWatcher):
    """Prints as runs end, with an estimate of the time left; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        # Elsewhere than on a terminal a bar would be noise; the lines say as much.
        self.bar = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def on_start(self, todo: Sequence[RunConfig], before: int, jobs: int) -> None:
        """How much there is to do. A study that tunes starts twice."""
        self.total, self.jobs, self.ended = len(todo), jobs, 0
        self.seconds: list[float] = []
        if todo:
            known = f", {before} are finished already" if before else ""
            self._print(f"{len(todo)} runs to do{known}; {min(jobs, len(todo))} at a time")
        else:
            self._print(f"nothing to do, all {before} runs are finished")
        self.bar.update(self.task, total=len(todo), completed=0, description="")

    def on_finished(self, config: RunConfig, summary: dict[str, Any], seconds: float) -> None:
        """Scores of the run."""
        scores = [
            f"{task} {'diverged' if score is None else f'{score:.4f}'}" for task, score in summary["scores"].items()
        ]
        self.seconds.append(seconds)
        self._end(config, ", ".join(scores[:_SHOWN]) + (", ..." if len(scores) > _SHOWN else ""))

    def on_failed(self, failure: Failure) -> None:
        """Why it failed."""
        self._end(failure.config, f"FAILED: {failure.reason}")

    def on_death(self, config: RunConfig, reason: str) -> None:
        """The sweep goes on."""
        self._print(f"{described(config)}: its worker died ({reason}); it will go on from its checkpoint")

    def _end(self, config: RunConfig, news: str) -> None:
        self.ended += 1
        left = self.total - self.ended
        # The median: the first run of a worker also waits for its imports.
        expected = median(self.seconds) * left / min(self.jobs, left) if self.seconds and left else 0
        rest = f"about {in_words(expected)} left" if expected else ""
        count = f"{self.ended:>{len(str(self.total))}}/{self.total}"
        self._print(f"{count}  {described(config)}: {news}" + (f"  ({rest})" if rest else ""))
        self.bar.update(self.task, completed=self.ended, description=f"{count}  {rest}")

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


def in_words(seconds: float) -> str:
    """A duration as people say it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def described(config: RunConfig) -> str:
    """A run in a few words."""
    kind = "" if config.noise_kind == UNIFORM else f" ({config.noise_kind})"
    return f"{config.benchmark}, {config.name}, noise {config.noise:g}{kind}, seed {config.seed}"
