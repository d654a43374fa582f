"""One rule says when a method is better, worse or equivalent, and when the seeds leave it undecided."""

import math

import pytest

from excessmtl.lab.compare.comparison import Comparison, difference, mean_change

OPEN = "undecided"


@pytest.mark.parametrize(
    ("differences", "verdict", "clear", "ahead"),
    [
        ((2.0, 1.9, 2.1), "better", True, True),
        ((-2.0, -1.9, -2.1), "worse", False, False),
        ((0.1, 0.0, -0.1), "equivalent", False, False),
        ((0.5, 0.51, 0.49), "equivalent", False, True),  # better by less than anybody asks for
        ((0.9, 1.3, 1.1), "better", True, True),  # the interval ends beyond the tolerance, and above 0
        ((0.5, 0.9, 1.0), "better", OPEN, True),  # its mean does not exceed the tolerance
        ((9.0, -5.0, 2.0), OPEN, OPEN, OPEN),
        ((-4.0, 5.0, 0.0), OPEN, OPEN, OPEN),  # a spread wider than the tolerance proves no equivalence
        ((2.0, 1.9), OPEN, OPEN, OPEN),
        ((2.0,), OPEN, OPEN, OPEN),
        ((), OPEN, OPEN, OPEN),
        ((math.inf, 0.0, 0.0), "better", True, True),
        ((-math.inf, 3.0, 3.0), "worse", False, False),
        ((math.inf, -math.inf, 0.0), OPEN, OPEN, OPEN),
        ((math.inf, math.inf), OPEN, OPEN, OPEN),
    ],
)
def test_the_whole_interval_decides_from_three_seeds_on(differences, verdict, clear, ahead):
    found = Comparison.of(differences, 1.0)
    assert (found.verdict, found.clear, found.ahead) == (verdict, clear, ahead)


def test_differences_are_points_or_percent_and_diverged_runs_are_infinitely_bad():
    assert difference(0.91, 0.9, True) == pytest.approx(1)
    assert difference(0.91, 0.9, False) == pytest.approx(-1)
    assert difference(0.11, 0.10, False, relative_to=0.10) == pytest.approx(-10)
    assert difference(-0.6, -0.5, True, relative_to=-0.5) == pytest.approx(-20)
    assert difference(math.nan, 0.5, True) == -math.inf
    assert difference(0.5, math.nan, False) == math.inf
    assert difference(math.nan, math.nan, True) == 0
    assert difference(1.0, 0.0, True, relative_to=0.0) == math.inf


def test_delta_m_of_a_published_row():
    """Linear scalarisation on NYUv2 as published with Nash-MTL: 5.59 against its single-task networks."""
    names = ["miou", "pix", "abs", "rel", "mean", "median", "11", "22", "30"]
    higher = dict(zip(names, [True, True, False, False, False, False, True, True, True], strict=True))
    stl = dict(zip(names, [38.30, 63.76, 0.6754, 0.2780, 25.01, 19.21, 30.14, 57.20, 69.15], strict=True))
    ls = dict(zip(names, [39.29, 65.33, 0.5493, 0.2263, 28.15, 23.96, 22.09, 47.50, 61.08], strict=True))
    assert -mean_change(ls, stl, higher) == pytest.approx(5.59, abs=0.05)
    assert mean_change(stl, stl, higher) == 0
