"""What a person sees of a run: a bar with each task's loss and weight, a line per epoch, and TensorBoard events."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from excessmtl.lab.runs.summary import Row
from excessmtl.step.result import Step


class Watcher:
    """Told about every step and epoch; does nothing itself."""

    def on_step(self, epoch: int, step: int, steps: int, result: Step) -> None:
        """After each step."""

    def on_epoch(self, epoch: int, row: dict[str, float]) -> None:
        """After each epoch, with its row of metrics.csv."""


class ProgressBar(Watcher):
    """A rich progress bar; reads from the device once a second, not at every step."""

    def __init__(self, console: Console, epochs: int, primary: dict[str, str]) -> None:
        self.epochs, self.primary = epochs, primary
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            console=console,
            transient=True,
        )
        self.bar = self.progress.add_task("", epoch=f"1/{epochs}", status="")
        self._moved = self._read = 0.0

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def on_step(self, epoch: int, step: int, steps: int, result: Step) -> None:
        """Move the bar ten times a second; refresh the numbers, which wait for the device, once a second."""
        now = time.monotonic()
        if now - self._moved < 0.1 and step + 1 < steps:
            return
        self._moved = now
        self.progress.update(self.bar, completed=step + 1, total=steps, epoch=f"{epoch + 1}/{self.epochs}")
        if now - self._read > 1:
            self._read = now
            pairs = zip(result.tasks, result.losses.tolist(), result.weights.tolist(), strict=True)
            shown = [f"{task} {loss:.3f} (weight {weight:.2f})" for task, loss, weight in pairs]
            self.progress.update(self.bar, status="  ".join(shown[:4]) + ("  ..." if len(shown) > 4 else ""))

    def on_epoch(self, epoch: int, row: dict[str, float]) -> None:
        """One line with the scores."""
        shown = [f"{task} {row[f'test/{task}/{metric}']:.4f}" for task, metric in self.primary.items()]
        line = "  ".join(shown[:8]) + ("  ..." if len(shown) > 8 else "")
        self.progress.console.print(f"epoch {epoch + 1:>3}  {line}", markup=False)


@contextmanager
def event_log(folder: Path, rows: Sequence[Row]) -> Iterator[Callable[[Row], None]]:
    """A function that logs the row of an epoch; `rows` are those of a resumed run.

    Events are written anew from the rows: a killed process leaves a file that may lack its last epochs, or have
    epochs that are trained again.
    """
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    writer = SummaryWriter(str(folder))

    def log(row: Row) -> None:
        for name, value in row.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(row["epoch"]))
        writer.flush()

    try:
        for row in rows:
            log(row)
        yield log
    finally:
        writer.close()
