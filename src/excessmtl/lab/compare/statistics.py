"""Mean, spread and interval of a few numbers, usually one per seed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

CONFIDENCE = 0.9


@dataclass(frozen=True)
class Spread:
    """Numbers that are finite, summarised."""

    mean: float
    """NaN where there is no number."""
    deviation: float
    """Of the sample (n - 1); NaN where there are fewer than two numbers."""
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Leaves out what is not finite."""
        finite = np.array([value for value in values if math.isfinite(value)], float)
        mean = float(finite.mean()) if len(finite) else math.nan
        return cls(mean, float(finite.std(ddof=1)) if len(finite) > 1 else math.nan, len(finite))

    @property
    def interval(self) -> tuple[float, float]:
        """The 90 % t-interval of the mean; NaN where there are fewer than two numbers."""
        if self.count < 2:
            return math.nan, math.nan
        half = float(student.ppf((1 + CONFIDENCE) / 2, self.count - 1)) * self.deviation / math.sqrt(self.count)
        return self.mean - half, self.mean + half

    def text(self, digits: int) -> str:
        """`mean ± deviation`, the latter from two numbers on."""
        spread = f" ± {self.deviation:.{digits}f}" if self.count > 1 else ""
        return f"{self.mean:z.{digits}f}{spread}"
