"""The loss of every task of a run."""

from collections.abc import Sequence

from excessmtl.lab.data.robust_losses import PLAIN
from excessmtl.lab.data.tasks import Loss, Task


def task_losses(tasks: Sequence[Task], name: str) -> dict[str, Loss]:
    """Task -> the loss of this name where its kind has one, else its own."""
    if name != PLAIN and not any(name in task.kind.variants for task in tasks):
        known = sorted({PLAIN, *(variant for task in tasks for variant in task.kind.variants)})
        raise ValueError(f"loss {name!r} is not there for any of these tasks; choose from {', '.join(known)}")
    return {task.name: task.kind.variants.get(name, lambda own=task.kind.loss: own)() for task in tasks}
