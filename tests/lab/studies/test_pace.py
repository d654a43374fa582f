"""The time that is left: what runs like the remaining ones took, shared between the workers."""

import pytest

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.studies.pace import Pace, in_words


def configs(benchmark, method, count):
    return [RunConfig(benchmark, method, seed=seed) for seed in range(count)]


def test_runs_are_expected_to_take_as_long_as_the_most_similar_ones():
    fast, slow, unknown = configs("school", "uniform", 3), configs("school", "mgda", 2), configs("sarcos", "rlw", 1)
    pace = Pace([*fast, *slow, *unknown], jobs=1)
    assert pace.seconds_left() is None
    pace.ended(fast[0], 10)
    assert pace.seconds_left() == pytest.approx(5 * 10)
    pace.ended(slow[0], 30)
    # Two fast, one slow, and one of which nothing is known: the median of all.
    assert pace.seconds_left() == pytest.approx(2 * 10 + 30 + 20)


def test_several_at_a_time_take_less():
    runs = configs("school", "uniform", 5)
    pace = Pace(runs, jobs=4)
    pace.ended(runs[0], 8)
    assert pace.seconds_left() == pytest.approx(4 * 8 / 4)
    for config in runs[1:4]:
        pace.ended(config, 8)
    assert pace.seconds_left() == pytest.approx(8)
    pace.ended(runs[4])
    assert pace.seconds_left() == 0


@pytest.mark.parametrize(("seconds", "words"), [(4.4, "4 s"), (600, "10 min"), (12_000, "3 h 20 min")])
def test_in_words(seconds, words):
    assert in_words(seconds) == words
