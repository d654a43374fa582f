"""What a person sees of a run: a bar with each task's loss and weight, and a line per epoch."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
