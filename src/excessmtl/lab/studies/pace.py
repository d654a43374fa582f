"""How long the rest of a sweep will take."""

import statistics
from collections.abc import Callable, Hashable, Sequence

from excessmtl.lab.runs.config import RunConfig

_ALIKE: tuple[Callable[[RunConfig], Hashable], ...] = (
    lambda config: (config.benchmark, config.name),
    lambda config: config.benchmark,
    lambda config: None,
)
"""What makes runs take equally long, best guess first."""


class Pace:
    """Times the runs that have ended and expects of the others what runs like them took."""

    def __init__(self, todo: Sequence[RunConfig], jobs: int) -> None:
        self.left, self.jobs = list(todo), jobs
        self.times: dict[Hashable, list[float]] = {}

    def ended(self, config: RunConfig, seconds: float | None = None) -> None:
        """One run less; `seconds` is None where its time says nothing about others."""
        self.left.remove(config)
        if seconds is not None:
            for number, alike in enumerate(_ALIKE):
                self.times.setdefault((number, alike(config)), []).append(seconds)

    def seconds_left(self) -> float | None:
        """None as long as no run has ended."""
        if not self.times:
            return None
        return sum(map(self._expected, self.left)) / max(1, min(self.jobs, len(self.left)))

    def _expected(self, config: RunConfig) -> float:
        # The median: the first run of a worker also waits for its imports.
        keys = [(number, alike(config)) for number, alike in enumerate(_ALIKE)]
        return statistics.median(next(self.times[key] for key in keys if key in self.times))


def in_words(seconds: float) -> str:
    """A duration as people say it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
