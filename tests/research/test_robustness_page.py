"""Verdicts and the page on robustness, from runs in which it is known what holds."""

import pandas as pd
import pytest

from excessmtl.lab.compare.collect import collect, read_table, write_table
from excessmtl.lab.compare.regret import write_regrets
from report_data import run, table
from research import newest, robustness
from research.robustness import dominating, judgements, standings

SCORES = {"excess": (0.9, 0.6), "uniform": (0.85, 0.7), "mgda": (0.7, 0.5)}


def scored(label, noise, seed, clean, noisy, benchmark="digits"):
    scores = {"clean": clean, "noisy": noisy}
    return run(label, noise, seed, scores, benchmark=benchmark, chosen_scores=scores)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("robust")
    rows = [
        scored(label, noise, seed, clean - noise / 10 + seed / 1000, noisy - noise / 2, benchmark)
        for benchmark in ("digits", "arms")
        for label, (clean, noisy) in SCORES.items()
        for noise in (0.0, 0.4)
        for seed in range(3)
    ]
    write_table(table(*rows), root / "runs.csv")
    return root


@pytest.fixture(scope="module")
def regrets(runs):
    return judgements(collect(runs), "excess")


def test_verdicts_against_all_rivals(regrets):
    text = robustness.against_all(regrets)
    # Overall uniform is ahead at every level, by 2.5 points.
    assert "in 4 of 8 (clean tasks and all tasks are two), worse than at least one in 4, undecided in 0." in text
    assert "better on clean tasks *and* over all in 0 of 4 comparisons" in text
    assert "In 16 differences it is better in 12, equivalent in 0, undecided in 0, worse in 4; in 4 the rival" in text
    assert ["digits", "0.4", "all tasks", "uniform 2.5 points"] in robustness.lost(regrets).texts


def test_every_method_is_held_to_the_measure_that_the_default_is(runs, monkeypatch):
    monkeypatch.setattr(robustness, "METHOD", "excess")
    frame = collect(runs).query("benchmark == 'digits'")
    every = robustness.of_every_method(frame).set_index("method").drop(robustness.CHOSEN)
    # Clean and over all: excess 0.9, 0.75; uniform 0.85, 0.775; mgda 0.7, 0.6.
    assert every["lost"].to_dict() == {"excess": 0.25, "uniform": 0.25, "mgda": 1.0}
    assert every["unbeaten"].to_dict() == {"excess": 0.5, "uniform": 0.5, "mgda": 0}
    assert every["on both"].to_dict() == {"excess": 0, "uniform": 0, "mgda": 2}


def levels(worlds, **changes):
    """Runs of every method at every level: label -> noise -> (clean, other clean, noisy), the same for each seed."""
    return table(
        *(
            run(label, noise, seed, {"one": one + seed / 1e6, "other": other, "noisy": noisy}, **changes)
            for label, own in worlds.items()
            for noise, (one, other, noisy) in own.items()
            for seed in range(4)
        )
    )


WORLD = {
    "excess": {0.0: (0.9, 0.8, 0.8), 0.4: (0.9, 0.8, 0.6)},
    "uniform": {0.0: (0.9, 0.8, 0.8), 0.4: (0.85, 0.7, 0.7)},
    "mgda": {0.0: (0.7, 0.7, 0.7), 0.4: (0.7, 0.6, 0.5)},
    "single": {0.0: (0.99, 0.99, 0.99), 0.4: (0.99, 0.99, 0.99)},
}


def test_a_rival_dominates_only_where_it_is_better_in_both():
    assert dominating(judgements(levels(WORLD))).empty
    better = {**WORLD, "uniform": {0.0: (0.9, 0.8, 0.8), 0.4: (0.91, 0.81, 0.7)}}
    assert dominating(judgements(levels(better))).to_dict("records") == [
        {"setting": "toy", "noise": 0.4, "rival": "uniform"}
    ]
    little = {**WORLD, "uniform": {0.4: (0.902, 0.802, 0.7)}}
    assert dominating(judgements(levels(little))).empty, "0.2 points on clean tasks are equivalent"


def test_a_method_stands_among_its_rivals_as_its_worst_comparison_says():
    judged = judgements(levels(WORLD))
    assert set(judged["rival"]) == {"uniform", "mgda"}, "not itself at noise 0"
    verdicts = standings(judged).set_index(["noise", "measure"])["verdict"].to_dict()
    assert (verdicts[0.0, "clean"], verdicts[0.4, "overall"]) == ("equivalent", "better")  # 76.7 against 75.0
    judged = judgements(levels({**WORLD, "uniform": {0.4: (0.85, 0.8, 0.72)}}))
    assert standings(judged).set_index(["noise", "measure"]).loc[(0.4, "overall"), "verdict"] == "worse"


def test_means_of_the_methods_that_the_page_shows():
    shown = ("uniform", "rlw", "mgda")
    _, loud = robustness.means(levels(WORLD), shown).texts
    assert loud == ["toy", "0.4", "% ↑", "77.5 / 75", "", "65 / 60"]
    _, loud = robustness.means(levels(WORLD, metrics=("nmse", False)), shown).texts
    assert loud == ["toy", "0.4", "error ↓", "0.775 / 0.75", "", "0.65 / 0.6"]


def test_runs_of_a_later_folder_stand_in_for_those_of_an_earlier_one_with_the_same_label_and_level():
    before, again = levels(WORLD), levels({"uniform": {0.4: (0.5, 0.5, 0.5)}})
    replaced = (before["label"] == "uniform") & (before["noise"] == 0.4)
    columns = ["label", "noise", "seed", "noisy_score"]
    together = newest([before, again], robustness.SETTING)[columns]
    expected = pd.concat([before[~replaced], again])[columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(together, expected)


def test_the_worst_clean_task_is_the_one_with_the_lowest_accuracy_or_the_largest_error():
    for metrics, worst in ((("accuracy", True), 0.7), (("nmse", False), 0.85)):
        frame = levels({"uniform": {0.4: (0.85, 0.7, 0.1)}}, metrics=metrics)
        assert robustness.with_worst(frame)["worst_score"].tolist() == pytest.approx([worst] * 4, abs=1e-5)


def test_an_ablation_is_no_rival_and_has_a_row_of_its_own():
    errors = {robustness.METHOD: 0.02, robustness.TRUSTING: 0.01, "uniform + robust loss": 0.015, "uniform": 0.03}
    errors |= {"uw": 0.018}
    frame = levels({label: {0.4: (own, own, own)} for label, own in errors.items()}, metrics=("nmse", False))
    frame["validation_error"] = frame["label"].map({robustness.METHOD: 0.5, robustness.TRUSTING: 0.4})
    rivals = {"uniform + robust loss", "uniform", "uw"}
    every = robustness.with_chosen(frame)
    assert set(judgements(every, robustness.METHOD)["rival"]) == rivals
    assert set(judgements(every, robustness.CHOSEN)["rival"]) == rivals
    assert set(judgements(every, "uw")["rival"]) == {*rivals - {"uw"}, robustness.METHOD}
    assert [row[1:] for row in robustness.parts(frame).texts] == [[*"111"], [*"001"], [*"001"], [*"001"], [*"111"]]
    frame["validation_error"] = 0.9 - frame["validation_error"]
    assert robustness.parts(frame).texts[2][1:] == [*"111"], "the default has the lower validation error"


def test_the_command_writes_the_files_that_the_page_is_filled_from(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(robustness, "DOCS", tmp_path)
    monkeypatch.setattr(robustness, "DATA", tmp_path / "data")
    monkeypatch.setattr(robustness, "PAGES", ())
    monkeypatch.setattr(robustness, "METHOD", "excess")
    robustness.main([runs])
    assert len(read_table(tmp_path / "data/runs.csv.gz")) == 36
    every = pd.read_csv(tmp_path / "data/regret.csv")
    assert len(every) == 4 * 2 * 2, "settings and levels, rivals, groups of tasks"
    worse = every[every["verdict"] == "worse"]
    assert (set(worse["rival"]), set(worse["measure"])) == ({"uniform"}, {"overall"})
    assert (tmp_path / "figures/robustness.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_published_comparisons_are_what_the_published_runs_give_byte_for_byte(tmp_path):
    runs = read_table(robustness.DATA / "runs.csv.gz")
    write_regrets(judgements(runs, robustness.METHOD), tmp_path / "regret.csv")
    assert (tmp_path / "regret.csv").read_bytes() == (robustness.DATA / "regret.csv").read_bytes()
    pd.testing.assert_frame_equal(
        robustness.of_every_method(runs), pd.read_csv(robustness.DATA / "methods.csv"), rtol=1e-5
    )


def test_a_folder_without_runs_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="holds no finished run"):
        robustness.main([tmp_path])
