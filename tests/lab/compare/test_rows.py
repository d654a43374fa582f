"""What is averaged in a table differs in its seed alone."""

import pytest

from excessmtl.lab.compare.measures import summary_table
from excessmtl.lab.compare.regret import regrets_of
from excessmtl.lab.compare.settings import settings
from report_data import run, table


def own(label="uniform", seed=0, noise=0.4, folder=None, **changes):
    made = run(label, noise, seed, {"clean": 0.9 + seed / 100, "noisy": 0.5}, **changes)
    return made | {"folder": folder or f"{label}/{noise}/{seed}/{changes}"}


def rows(*runs):
    (setting,) = settings(table(*runs))
    found = summary_table(setting)
    seeds = list(found.columns).index("seeds")
    return [(row[0], row[1], row[seeds]) for row in found.texts]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.05}, "learning_rate=0.05"),
        ({"weight_decay": 0.1}, "weight_decay=0.1"),
        ({"loss": "robust"}, "loss=robust"),
        ({"options": {"rate": 2}}, "option rate=2"),
        ({"method_options": {"rate": 2}, "code": "abc"}, "code=abc"),
        ({"settings": {"batch_size": 32}, "code": "abc"}, "code=abc"),
        ({"method": "static"}, "method=static"),
        ({"code": "abc"}, "code=abc"),
    ],
)
def test_whatever_differs_is_a_row_of_its_own(changes, words):
    labels = [label for label, *_ in rows(own(), own(seed=1, **changes))]
    assert len(labels) == 2
    assert f"uniform ({words})" in labels


def test_settings_that_both_runs_recorded_are_compared_one_by_one():
    settings = ({"batch_size": size, "schedule": "cosine"} for size in (8, 16))
    runs = [own(seed=seed, code="abc", settings=one) for seed, one in enumerate(settings)]
    assert [label for label, *_ in rows(*runs)] == ["uniform (batch_size=16)", "uniform (batch_size=8)"]


def test_seeds_are_one_row_and_a_rate_chosen_for_each_noise_level_is_no_difference():
    runs = [own(seed=n, noise=noise, learning_rate=rate) for noise, rate in ((0.0, 0.1), (0.4, 0.2)) for n in (0, 1)]
    assert rows(*runs) == [("uniform", "0", "2"), ("uniform", "0.4", "2")]


@pytest.mark.parametrize("look", [settings, regrets_of])
def test_the_same_run_twice_is_refused_by_name(look):
    runs = [own("excess"), own(folder="a/one"), own(folder="b/two")]
    with pytest.raises(ValueError, match=r"a/one and b/two are two runs of uniform on toy at noise 0\.4 with seed 0"):
        look(table(*runs))


def test_regrets_are_of_one_row_each():
    ours = [own("excess", seed) for seed in range(3)]
    theirs = [own("uniform", seed, learning_rate=rate) for seed in range(3) for rate in (0.1, 0.2)]
    found = regrets_of(table(*ours, *theirs), "excess").table
    assert set(found["rival"]) == {"uniform (learning_rate=0.1)", "uniform (learning_rate=0.2)"}
    assert set(found["seeds"]) == {3}


def test_where_the_default_has_two_rows_it_is_said_and_either_can_be_named():
    runs = [own("excess", seed, learning_rate=rate) for seed in range(3) for rate in (0.1, 0.2)]
    frame = table(*runs, *(own("uniform", seed) for seed in range(3)))
    found = regrets_of(frame)
    assert found.table.empty
    assert "excess (learning_rate=0.1), excess (learning_rate=0.2); name one by --method" in found.left_out[0]
    assert set(regrets_of(frame, "excess (learning_rate=0.2)").table["seeds"]) == {3}
