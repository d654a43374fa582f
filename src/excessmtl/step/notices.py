"""Telling the user, once, that tasks are left out of training because something about them is not finite.

Nothing waits for a device here. On a CPU every step is looked at. On a CUDA device the numbers of some steps are copied
to the host while training goes on, and are looked at in a later step, when they have arrived.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

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

    def __init__(self) -> None:
        self._told_all = False
        self._told: set[str] = set()
        self._seen = 0
        self._forget()

    def _forget(self) -> None:
        self._device: torch.device | None = None
        self._target: Tensor | None = None
        self._numbers: np.ndarray | None = None
        """The memory of `_target`; reading it is no tensor operation."""
        self._arrival: torch.cuda.Event | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_told_all": self._told_all, "_told": set(self._told), "_seen": self._seen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def look(self, step: Step) -> None:
        """At a step that has been taken."""
        device = step.numbers.device
        if device.type == "cpu":
            self._copy(step)
            self._judge(step.tasks)
        elif device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            if self._arrival is not None and self._arrival.query():  # type: ignore[no-untyped-call]
                self._arrival = None
                self._judge(step.tasks)
            if self._arrival is None and (self._seen < _FIRST or self._seen % _EVERY == 0):
                self._copy(step)
                self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._arrival.record(torch.cuda.current_stream(device))
            self._seen += 1

    def _copy(self, step: Step) -> None:
        numbers = step.numbers
        if self._target is None or self._device != numbers.device:
            self._device = numbers.device
            if numbers.device.type == "cuda":  # memory that is not pinned would make the host wait
                self._target = torch.zeros(numbers.shape, dtype=torch.float32, device="cpu", pin_memory=True)
                self._numbers = self._target.numpy()
            else:
                self._numbers = np.zeros(numbers.shape, dtype=np.float32)
                self._target = torch.from_numpy(self._numbers)
        self._target.copy_(numbers, non_blocking=True)

    def _judge(self, tasks: tuple[str, ...]) -> None:
        assert self._numbers is not None
        in_a_row = self._numbers[3]
        if not in_a_row.any():
            return
        losses = self._numbers[1]
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
            warn(
                f"{_listed(new)} left out of {IN_A_ROW} batches in a row, because the loss or a gradient was not "
                f"finite. {_REMEDY}"
            )


def _listed(names: list[str]) -> str:
    return f"task {names[0]!r} has been" if len(names) == 1 else f"tasks {names} have been"
