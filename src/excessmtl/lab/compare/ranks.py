"""Mean ranks of methods over many comparisons, and how far apart two of them must be to differ.

Friedman's test asks whether the methods differ at all. Nemenyi's critical difference (Demšar, JMLR 2006) says from
which distance on two mean ranks differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from scipy.stats import friedmanchisquare, studentized_range

from excessmtl.lab.compare.comparison import CONFIDENCE


@dataclass(frozen=True)
class Ranks:
    """Mean ranks, 1 is the best."""

    mean: pd.Series
    """By method, the best first."""
    comparisons: int
    blocks: int
    """What counts as independent of each other: data sets, or the comparisons themselves."""
    critical_difference: float
    """NaN with fewer than two methods or blocks."""
    p_value: float
    """Of Friedman's test; NaN with fewer than three methods or two blocks."""


def mean_ranks(scores: pd.DataFrame, blocks: Sequence[str] | None = None) -> Ranks:
    """Ranks of the columns (methods) in each row (comparison), averaged; higher scores are better.

    A method without a score has diverged and is last; equal scores share their ranks. Methods that are missing from a
    comparison must have been left out before: a rank among fewer is a better one for free.

    `blocks`: of each row, what it has in common with others, such as its data set. Ranks are then averaged within
    blocks first, and both tests count blocks: comparisons on the same data are not independent. None: each row is one.
    """
    filled = scores.fillna(-math.inf)
    ranks = filled.rank(axis=1, ascending=False)
    if blocks is not None:
        ranks = ranks.groupby(list(blocks)).mean()
    rows, methods = ranks.shape
    difference, p_value = math.nan, math.nan
    if methods > 1 and rows > 1:
        # The studentised range for infinitely many degrees of freedom, over the square root of 2.
        quantile = float(studentized_range.ppf(CONFIDENCE, methods, math.inf)) / math.sqrt(2)
        difference = quantile * math.sqrt(methods * (methods + 1) / (6 * rows))
    if methods > 2 and rows > 1 and (ranks.nunique(axis=1) > 1).any():
        p_value = float(friedmanchisquare(*(ranks[name] for name in ranks)).pvalue)
    return Ranks(ranks.mean().sort_values(kind="stable"), len(scores), rows, difference, p_value)
