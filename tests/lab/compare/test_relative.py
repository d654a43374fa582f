import math

import pytest

from excessmtl.lab.compare.relative import delta_m, mean_rank


def test_delta_m_of_a_published_row():
    """Linear scalarisation on NYUv2 as published with Nash-MTL: 5.59 against its single-task networks."""
    names = ["miou", "pix", "abs", "rel", "mean", "median", "11", "22", "30"]
    higher = dict(zip(names, [True, True, False, False, False, False, True, True, True], strict=True))
    stl = dict(zip(names, [38.30, 63.76, 0.6754, 0.2780, 25.01, 19.21, 30.14, 57.20, 69.15], strict=True))
    ls = dict(zip(names, [39.29, 65.33, 0.5493, 0.2263, 28.15, 23.96, 22.09, 47.50, 61.08], strict=True))
    assert delta_m(ls, stl, higher) == pytest.approx(5.59, abs=0.05)
    assert delta_m(stl, stl, higher) == 0


def test_mean_rank_averages_ties_and_ranks_a_diverged_run_last():
    table = {
        "a": {"miou": 0.5, "rel_error": 9.0},
        "b": {"miou": 0.5, "rel_error": 10.0},
        "c": {"miou": -5.0, "rel_error": 0.2},
        "d": {"miou": math.nan, "rel_error": math.nan},
    }
    higher = {"miou": True, "rel_error": False}
    expected = {"a": (1.5 + 2) / 2, "b": (1.5 + 3) / 2, "c": (3 + 1) / 2, "d": 4}
    assert mean_rank(table, higher) == expected
