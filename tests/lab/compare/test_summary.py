"""Numbers of the summary table, worked out by hand."""

import math

import pytest

from excessmtl.lab.compare.measures import measures_of, rows_of, summary_table
from excessmtl.lab.compare.settings import settings
from report_data import made_up, run, table

MIXED = {"a": ("pixel_accuracy", True), "b": ("rel_error", False)}


def cells(*runs, label="excess", noise=0.8):
    (setting,) = settings(table(*runs))
    (row,) = [row for row in rows_of(setting) if (row.label, row.noise) == (label, noise)]
    return row.cells


def test_scores_are_means_and_deviations_over_seeds_in_percent():
    found = cells(made_up(seed=0, scores={"a": 0.9, "b": 0.5}), made_up(seed=1, scores={"a": 0.8, "b": 0.5}))
    assert found["clean_score"].text == "85.0 ± 7.1"
    assert found["noisy_score"].text == "50.0 ± 0.0"
    assert found["overall_score"].text == "67.5 ± 3.5"
    assert found["clean_weight"].text == "0.50 ± 0.00"
    assert found["seconds_per_step"].text == "10.0 ± 0.0"


def test_a_small_loss_is_not_a_negative_zero():
    runs = [made_up(scores={"a": 0.50001, "b": 0.5}), made_up("single", scores={"a": 0.5, "b": 0.5})]
    assert cells(*runs)["delta_m"].text == "0.0"


def test_tasks_in_different_units_are_never_averaged():
    runs = [made_up(kinds=MIXED), made_up("single", kinds=MIXED, scores={"a": 0.6, "b": 0.25})]
    (setting,) = settings(table(*runs))
    keys = [measure.key for measure in measures_of(setting)]
    assert keys == ["score/a", "score/b", "delta_m", "clean_weight", "seconds_per_step"]
    found = cells(*runs)
    assert found["score/a"].text == "90.0"
    assert found["score/b"].text == "0.5000"
    # a: 0.9 against 0.6 is 50 % better; b: an error of 0.5 against 0.25 is 100 % worse.
    assert found["delta_m"].text == "25.0"


def test_delta_m_is_against_the_single_run_of_the_same_noise_and_seed():
    runs = [
        made_up(seed=0, scores={"a": 0.6, "b": 0.5}),
        made_up("single", seed=0, scores={"a": 0.5, "b": 0.5}),
        made_up("single", seed=1, scores={"a": 0.1, "b": 0.1}),
        made_up("single", seed=0, noise=0.0, scores={"a": 0.2, "b": 0.2}),
    ]
    assert cells(*runs)["delta_m"].text == "−10.0"
    assert cells(*runs, label="single")["delta_m"].text == "–"


def test_there_is_no_delta_m_without_a_partner():
    assert "delta_m" not in cells(made_up())
    assert "delta_m" not in cells(made_up(seed=0), made_up("single", seed=1))
    assert "delta_m" not in cells(made_up(), made_up("single", scores={"a": 0.0, "b": 0.5}))


def test_ranks_are_among_rivals_of_one_seed_that_all_have_run():
    runs = [
        made_up("excess", seed=0, scores={"a": 0.9, "b": 0.1}),
        made_up("mgda", seed=0, scores={"a": 0.8, "b": 0.2}),
        made_up("uniform", seed=0, scores={"a": 0.7, "b": 0.3}),
        made_up("single", seed=0, scores={"a": 1.0, "b": 1.0}),
        made_up("excess", seed=1, scores={"a": 0.1, "b": 0.1}),  # alone with this seed: no rank
    ]
    assert cells(*runs)["mean_rank"].text == "2.00"
    runs[0] = made_up("excess", seed=0, scores={"a": 0.9, "b": 0.9})
    assert cells(*runs)["mean_rank"].text == "1.00"
    assert cells(*runs, label="single")["mean_rank"].text == "–"


def test_a_diverged_run_is_named_and_never_averaged():
    gone = made_up(seed=1, scores={"a": None, "b": 0.5})
    both = cells(made_up(seed=0), gone)
    assert both["overall_score"].text == "70.0"
    assert both["overall_score"].note == "1 of 2 diverged"
    assert both["overall_score"].plain == "70.0 (1 of 2 diverged)"
    assert cells(gone)["overall_score"].text == "diverged"
    assert cells(gone)["noisy_score"].text == "50.0"
    assert cells(gone)["overall_score"].order == ""


def test_a_method_with_a_diverged_run_is_not_the_best():
    runs = [
        made_up("excess", seed=0),
        made_up("mgda", seed=0, scores={"a": 0.99, "b": 0.99}),
        made_up("mgda", seed=1, scores={"a": None, "b": None}),
        made_up("uniform", seed=0, scores={"a": 0.1, "b": 0.1}),
    ]
    assert cells(*runs)["overall_score"].best
    assert not cells(*runs, label="mgda")["overall_score"].best
    assert not cells(made_up("excess"), made_up("mgda"))["overall_score"].best, "all are alike"


def test_a_setting_without_noisy_tasks_has_no_noisy_score():
    assert "noisy_score" not in cells(made_up(noisy_tasks=[]))
    assert "clean_score" not in cells(made_up(noisy_tasks=["a", "b"]))


def test_runs_on_other_data_are_not_averaged_together():
    found = settings(table(made_up(), made_up(source="other"), made_up(noisy_tasks=["a"]), made_up(seed=1)))
    assert sorted(len(setting.runs) for setting in found) == [1, 1, 2]


def test_a_task_may_be_called_like_a_column():
    kinds = {"a": ("accuracy", True), "label": ("rel_error", False)}
    assert cells(made_up(scores={"a": 0.9, "label": 0.2}, kinds=kinds))["score/label"].text == "0.2000"


@pytest.mark.parametrize("missing", [None, math.nan])
def test_values_read_from_a_csv_are_the_same(missing):
    assert cells(made_up(clean_weight=missing), made_up("mgda"))["clean_weight"].text == "–"


@pytest.mark.parametrize(
    ("kind", "unit", "scores", "text", "heading"),
    [
        (("psnr", True), "dB", (31.2, 30.0), "31.20", "clean, dB ↑"),
        (("nmse", False), "", (0.1, 0.2), "0.1000", "clean ↓"),
        (("error_rate", False), "share", (0.031, 0.5), "3.1", "clean, % ↓"),
    ],
)
def test_a_score_is_shown_in_its_unit_and_the_best_by_its_direction(kind, unit, scores, text, heading):
    more = {"kinds": dict.fromkeys("ab", kind), "units": dict.fromkeys("ab", unit)}
    better, worse = ({"a": score, "b": 0.5} for score in scores)
    runs = [made_up(scores=better, **more), made_up("mgda", scores=worse, **more)]
    found = cells(*runs)["clean_score"]
    assert (found.text, found.best, shown(*runs).columns[2]) == (text, True, heading)
    assert not cells(*runs, label="mgda")["clean_score"].best


def test_equal_metrics_in_different_units_are_not_averaged():
    kinds = dict.fromkeys("ab", ("error", False))
    (setting,) = settings(table(made_up(kinds=kinds, units={"a": "m", "b": "kg"})))
    assert setting.common_metric is None
    assert [measure.heading for measure in measures_of(setting)[:2]] == ["a\nerror, m ↓", "b\nerror, kg ↓"]


def shown(*runs):
    (setting,) = settings(table(*runs))
    return summary_table(setting)


def test_the_table_has_a_row_for_each_level_and_method():
    rows = [run(label, noise, 0, {"clean": 0.5}) for label in ("single", "b", "excess") for noise in (0.8, 0)]
    found = shown(*rows)
    assert [row[:2] for row in found.texts] == [[own, n] for n in ("0", "0.8") for own in ("excess", "b", "single")]
    assert found.title == "toy: made up; accuracy; noise in no task"
