"""Telling the user, once, that tasks are left out of training because something about them is not finite.

Nothing waits for a device here. On a CPU the balancer copies the numbers of every step, and asks for a judgement where
a task was left out. On a CUDA device those of some steps are copied to the host while training goes on, and are judged
in a later step, when they have arrived.
"""

from copy import copy
from typing import Any

import numpy as np
import torch

from excessmtl.step.result import Step
from excessmtl.warn import warn

IN_A_ROW = 10
"""So many times in a row is no accident."""
_FIRST, _EVERY = 4, 16
"""On a CUDA device the first steps are looked at, and then one of so many: each look takes the host some time."""
_REMEDY = (
    "Targets that are NaN where a label is missing make the loss NaN: leave them out by losses, mask = "
    "excessmtl.losses.by_task(outputs, targets, tasks), and pass both, backward(losses, mask=mask); or pass None for a "
    "task without labels in the batch. If no label is missing, look for inf or NaN in the inputs, or lower the "
    "learning rate"
)


class Watch:
    """Looks at the steps of a balancer and warns once for each thing it finds."""

    def __init__(self, tasks: tuple[str, ...]) -> None:
        self._tasks = tasks
        self._told_all = False
        self._told: set[str] = set()
        self._seen = 0
        self._make_memory()

    def _make_memory(self) -> None:
        """Where the numbers of a step are copied to; reading them there is no tensor operation."""
        self.numbers: np.ndarray = np.zeros((4, len(self._tasks)), dtype=np.float32)
        with torch.inference_mode(False):
            self.target = torch.from_numpy(self.numbers)
        self._arrival: torch.cuda.Event | None = None

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_tasks", "_told_all", "_told", "_seen")
        return {name: copy(getattr(self, name)) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_memory()

    def look(self, step: Step) -> None:
        """At a step that has been taken on a CUDA device."""
        if torch.cuda.is_current_stream_capturing():
            return
        if self._arrival is not None and self._arrival.query():  # type: ignore[no-untyped-call]
            self._arrival = None
            self.judge()
        if self._arrival is None and (self._seen < _FIRST or self._seen % _EVERY == 0):
            if not self.target.is_pinned():  # memory that is not would make the host wait
                self.target = self.target.pin_memory()
                self.numbers = self.target.numpy()
            self.target.copy_(step.numbers, non_blocking=True)
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record(torch.cuda.current_stream(step.numbers.device))
        self._seen += 1

    def judge(self) -> None:
        """Warn of what the numbers show."""
        tasks, losses, in_a_row = self._tasks, self.numbers[1], self.numbers[3]
        if not in_a_row.any():
            return
        took_part = (in_a_row == 0) & ~np.isnan(losses)
        if not took_part.any() and not self._told_all:
            self._told_all = True
            names = [task for task, count in zip(tasks, in_a_row, strict=True) if count]
            warn(
                f"every task of a step was left out ({names}), because the loss or a gradient of each was not finite, "
                f"so no parameter got a gradient. {_REMEDY}"
            )
        often = [task for task, count in zip(tasks, in_a_row, strict=True) if count >= IN_A_ROW]
        new = [task for task in often if task not in self._told]
        if new:
            self._told.update(new)
            which = f"task {new[0]!r} has been" if len(new) == 1 else f"tasks {new} have been"
            warn(
                f"{which} left out of {IN_A_ROW} batches in a row, because the loss or a gradient was not "
                f"finite. {_REMEDY}"
            )
