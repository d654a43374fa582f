"""A warning when a task turns noisy, and only one."""

from excessmtl.diagnosis.report import Report
from excessmtl.warn import warn


class WarnOnce:
    """Call it with every new report: it warns once for each task that is called noisy.

    warn = WarnOnce()
    for epoch in range(epochs):
        ...
        warn(excessmtl.diagnose(predictions, targets))
    """

    def __init__(self) -> None:
        self.warned: set[str] = set()

    def __call__(self, report: Report) -> None:
        """Warn about tasks that are noisy now and were not before."""
        for task in report.tasks:
            if task.verdict == "noisy" and task.task not in self.warned:
                self.warned.add(task.task)
                warn(f"task {task.task!r} has bad labels: {task.reason}; {task.advice}")
