import math

import pytest

from excessmtl.lab.data.comparison import delta_m, mean_rank

HIGHER = {"miou": True, "rel_error": False}


def test_delta_m_is_zero_at_the_baseline_and_negative_when_better() -> None:
    baseline = {"miou": 0.4, "rel_error": 0.2}
    assert delta_m(baseline, baseline, HIGHER) == 0
    assert delta_m({"miou": 0.5, "rel_error": 0.1}, baseline, HIGHER) == pytest.approx(-(25 + 50) / 2)
    assert delta_m({"miou": 0.3, "rel_error": 0.2}, baseline, HIGHER) == pytest.approx(12.5)


def test_delta_m_of_a_published_row() -> None:
    """Linear scalarisation on NYUv2 as published with Nash-MTL: 5.59 against its single-task networks."""
    names = ["miou", "pix", "abs", "rel", "mean", "median", "11", "22", "30"]
    higher = dict(zip(names, [True, True, False, False, False, False, True, True, True], strict=True))
    stl = dict(zip(names, [38.30, 63.76, 0.6754, 0.2780, 25.01, 19.21, 30.14, 57.20, 69.15], strict=True))
    ls = dict(zip(names, [39.29, 65.33, 0.5493, 0.2263, 28.15, 23.96, 22.09, 47.50, 61.08], strict=True))
    assert delta_m(ls, stl, higher) == pytest.approx(5.59, abs=0.05)


def test_delta_m_refuses_what_it_cannot_compare() -> None:
    with pytest.raises(ValueError, match=r"baseline is 0 in \['miou'\]"):
        delta_m({"miou": 0.1, "rel_error": 1}, {"miou": 0, "rel_error": 1}, HIGHER)
    with pytest.raises(ValueError, match="scores has the metrics"):
        delta_m({"miou": 0.1}, {"miou": 0.1, "rel_error": 1}, HIGHER)
    with pytest.raises(ValueError, match="at least one metric"):
        delta_m({}, {}, {})


def test_mean_rank_averages_ties() -> None:
    table = {
        "a": {"miou": 0.5, "rel_error": 0.3},
        "b": {"miou": 0.5, "rel_error": 0.1},
        "c": {"miou": 0.10, "rel_error": 0.2},
    }
    assert mean_rank(table, HIGHER) == {"a": (1.5 + 3) / 2, "b": (1.5 + 1) / 2, "c": (3 + 2) / 2}


def test_numbers_are_ranked_as_numbers() -> None:
    table = {"a": {"loss": 9.0}, "b": {"loss": 10.0}}
    assert mean_rank(table, {"loss": False}) == {"a": 1, "b": 2}


def test_a_diverged_run_ranks_last() -> None:
    table = {"a": {"x": 1.0}, "b": {"x": math.nan}, "c": {"x": -5.0}}
    assert mean_rank(table, {"x": True}) == {"a": 1, "c": 2, "b": 3}


def test_mean_rank_needs_something_to_rank() -> None:
    with pytest.raises(ValueError, match="at least one method"):
        mean_rank({}, HIGHER)
    with pytest.raises(ValueError, match="a has the metrics"):
        mean_rank({"a": {"miou": 1.0}}, HIGHER)
