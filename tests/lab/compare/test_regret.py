"""Regrets against numbers worked out on paper."""

import math

import pandas as pd
import pytest

from excessmtl.lab.compare.regret import ITSELF, every_regret, regrets_of, verdict, write_regrets
from report_data import ACCURACY, ERROR, made_up, run
from report_data import table as frame


def regret_table(runs, method="excess"):
    return regrets_of(runs, method).table


def only(regrets, **wanted):
    """The one row with these values."""
    for column, value in wanted.items():
        regrets = regrets[regrets[column] == value]
    assert len(regrets) == 1, regrets
    return regrets.iloc[0]


def accuracies(label, noise, pairs):
    return [run(label, noise, seed, {"clean": clean, "noisy": noisy}) for seed, (clean, noisy) in enumerate(pairs)]


def test_accuracies_are_compared_in_points_with_a_t_interval():
    ours = accuracies("excess", 0.4, [(0.90, 0.5), (0.91, 0.5), (0.92, 0.5)])
    theirs = accuracies("uniform", 0.4, [(0.91, 0.5), (0.93, 0.5), (0.95, 0.5)])
    regrets = regret_table(frame(*ours, *theirs))
    clean = only(regrets, measure="clean")
    # Differences 1, 2, 3: mean 2, standard deviation 1; the 95 % quantile of t with two degrees of freedom is 2.920.
    assert clean["regret"] == pytest.approx(2)
    assert clean["lower"] == pytest.approx(2 - 2.920 / math.sqrt(3), abs=1e-3)
    assert clean["upper"] == pytest.approx(2 + 2.920 / math.sqrt(3), abs=1e-3)
    assert (clean["unit"], clean["seeds"], clean["tolerance"], clean["verdict"]) == ("points", 3, 0.3, "worse")
    overall = only(regrets, measure="overall")
    assert overall["regret"] == pytest.approx(1)
    assert overall["lower"] == pytest.approx(1 - 0.5 * 2.920 / math.sqrt(3), abs=1e-3)
    assert (overall["tolerance"], overall["verdict"]) == (1, "worse")


def test_pairs_are_of_the_same_seed():
    ours = [run("excess", 0, seed, {"clean": 0.5 + seed / 10}) for seed in (1, 2, 3)]
    theirs = [run("uniform", 0, seed, {"clean": 0.5 + seed / 10}) for seed in (3, 2, 1, 4)]
    regret = only(regret_table(frame(*ours, *theirs)), measure="clean")
    assert (regret["regret"], regret["lower"], regret["upper"]) == pytest.approx((0, 0, 0), abs=1e-12)
    assert regret["seeds"] == 3


@pytest.mark.parametrize(("metric", "ours", "theirs"), [(ERROR, 0.11, 0.10), (("psnr", True), 27.0, 30.0)])
def test_what_is_no_share_is_compared_in_percent_of_the_rival_whatever_its_direction(metric, ours, theirs):
    rows = [run(label, 0.8, 0, {"clean": score}, metric) for label, score in (("excess", ours), ("uniform", theirs))]
    regrets = regret_table(frame(*rows))
    clean, overall = only(regrets, measure="clean"), only(regrets, measure="overall")
    assert (clean["regret"], clean["unit"], clean["tolerance"]) == (pytest.approx(10), "percent", 3)
    assert (overall["tolerance"], clean["verdict"]) == (5, "undecided"), "one seed"


def test_metrics_of_different_kinds_are_compared_task_by_task():
    metrics = {"noisy": ACCURACY, "depth": ("rel_error", False), "normals": ("within_30", True)}
    ours = run("excess", 0.4, 0, {"noisy": 0.45, "depth": 0.20, "normals": 0.30}, metrics)
    theirs = run("uniform", 0.4, 0, {"noisy": 0.50, "depth": 0.25, "normals": 0.40}, metrics)
    regrets = regret_table(frame(ours, theirs))
    # depth 20 % better, normals 25 % worse; the noisy task 10 % worse
    assert only(regrets, measure="clean")["regret"] == pytest.approx((-20 + 25) / 2)
    assert only(regrets, measure="overall")["regret"] == pytest.approx((-20 + 25 + 10) / 3)
    assert set(regrets["unit"]) == {"percent"}


def test_the_method_is_compared_with_itself_without_noise():
    rows = [*accuracies("excess", 0, [(0.98, 0.9)]), *accuracies("excess", 0.6, [(0.95, 0.2)])]
    rows += [*accuracies("uniform", 0, [(0.1, 0.1)]), *accuracies("uniform", 0.6, [(0.1, 0.1)])]
    itself = only(regret_table(frame(*rows)), rival=ITSELF)
    assert (itself["noise"], itself["measure"], itself["regret"]) == (0.6, "clean", pytest.approx(3))


@pytest.mark.parametrize(
    ("ours", "theirs", "regret", "word"),
    [(None, 0.5, math.inf, "worse"), (0.5, None, -math.inf, "better"), (None, None, 0, "equivalent")],
)
@pytest.mark.parametrize("metrics", [ACCURACY, ERROR, {"clean": ACCURACY, "noisy": ERROR}])
def test_a_run_that_diverged_is_infinitely_bad(ours, theirs, regret, word, metrics):
    rows = [run("excess", 0, 0, {"clean": ours, "noisy": 0.5}, metrics)]
    rows += [run("uniform", 0, 0, {"clean": theirs, "noisy": 0.5}, metrics)]
    rows += [
        run(label, 0, seed, {"clean": 0.5, "noisy": 0.5}, metrics) for label in ("excess", "uniform") for seed in (1, 2)
    ]
    found = regret_table(frame(*rows))
    for measure in ("clean", "overall"):
        row = only(found, measure=measure)
        assert (row["regret"], row["lower"], row["verdict"]) == (regret, regret, word)


def test_rivals_are_the_other_weighting_methods_and_the_default_is_known_by_what_it_is():
    rows = [run(label, 0, 0, {"clean": 0.5}) for label in ("ExcessMTL (ours)", "uniform", "excess", "single")]
    rows[0] |= {"method": "excess", "options": {"estimator": "robust"}}
    rows[2] |= {"options": {"estimator": "paper"}}
    found = regrets_of(frame(*rows))
    assert (found.method, set(found.table["rival"])) == ("ExcessMTL (ours)", {"uniform", "excess"})
    assert set(regret_table(frame(*rows), "uniform")["rival"]) == {"ExcessMTL (ours)", "excess"}
    assert regrets_of(frame(rows[0], rows[3])) is None
    assert regrets_of(frame(rows[1], rows[2])) is None


def test_without_clean_tasks_only_the_overall_score_is_compared():
    rows = [run(label, 0.5, 0, {"noisy": 0.5}) for label in ("excess", "uniform")]
    assert regret_table(frame(*rows))["measure"].tolist() == ["overall"]


def test_the_verdicts_are_counted_and_written(tmp_path):
    rows = []
    for noise, (ours, uniform, mgda) in {0: (0.90, 0.90, 0.901), 0.8: (0.80, 0.85, 0.70)}.items():
        for seed in range(3):
            rows += [run("excess", noise, seed, {"clean": ours}), run("uniform", noise, seed, {"clean": uniform})]
            rows += [run("mgda", noise, seed, {"clean": mgda})]
    regrets = regret_table(frame(*rows))
    sentence = verdict(regrets, "excess")
    assert sentence.startswith("Of 9 comparisons excess is better in 2, equivalent in 4, undecided in 0, worse in 3")
    write_regrets(regrets, tmp_path / "regret.csv")
    assert len(pd.read_csv(tmp_path / "regret.csv")) == 9


def test_one_benchmark_on_two_data_sets_is_two_settings():
    rows = [
        run(label, 0.4, 0, {"clean": score}, source=source)
        for source, ours in (("bundled digits", 0.8), ("full MNIST", 0.9))
        for label, score in (("excess", ours), ("uniform", 0.85))
    ]
    regrets = regret_table(frame(*rows))
    clean = regrets[regrets["measure"] == "clean"]
    assert clean.set_index("source")["regret"].round(6).to_dict() == {"bundled digits": 5.0, "full MNIST": -5.0}
    assert set(regrets["setting"]) == {"toy (bundled digits)", "toy (full MNIST)"}, "the shortest names that differ"


def test_the_worst_comes_first_in_units_of_its_tolerance():
    errors = dict.fromkeys("ab", ERROR)
    rows = []
    for seed in range(3):
        rows += [
            made_up("excess", seed=seed, scores={"a": 0.90, "b": 0.5}),
            made_up("mgda", seed=seed, scores={"a": 0.91, "b": 0.5}),
            made_up("excess", seed=seed, benchmark="arm", kinds=errors, scores={"a": 1.2, "b": 1.0}),
            made_up("mgda", seed=seed, benchmark="arm", kinds=errors, scores={"a": 1.0, "b": 1.0}),
        ]
    found = every_regret(regret_table(frame(*rows)))
    assert found.texts[0][:5] == ["mgda", "arm", "0.8", "tasks without added noise", "+20.00 %"]
    assert found.rows[0].flagged
    assert found.texts[1][:5] == ["mgda", "digits", "0.8", "tasks without added noise", "+1.00"]


def test_a_diverged_run_is_a_word_that_sorts_as_infinite():
    gone = {"a": None, "b": 0.5}
    found = every_regret(regret_table(frame(made_up("excess", scores=gone), made_up("mgda"))))
    assert (found.rows[0].cells[4].text, found.rows[0].cells[4].order) == ("diverged", "Infinity")
    found = every_regret(regret_table(frame(made_up("excess"), made_up("mgda", scores=gone))))
    assert found.texts[-1][4] == "rival diverged"
