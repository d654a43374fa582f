"""Ranks, and verdicts on runs in which it is known what holds."""

import math

import pandas as pd
import pytest

from excessmtl.lab.compare.collect import NESTED, PLAIN
from excessmtl.lab.compare.ranks import mean_ranks
from excessmtl.lab.compare.robustness import (
    CHOSEN,
    LAST,
    comparisons,
    dominating,
    judgements,
    scores_by_run,
    standings,
)
from report_data import run

SEEDS = range(4)


def frame(scores, chosen=None, **changes):
    """Runs of every method at every level: label -> noise -> (clean, other clean, noisy), the same for each seed."""
    rows = []
    for label, levels in scores.items():
        for noise, (one, other, noisy) in levels.items():
            for seed in SEEDS:
                own = {"one": one + seed / 1e6, "other": other, "noisy": noisy}
                best = None if chosen is None else {task: score + chosen for task, score in own.items()}
                rows.append(run(label, noise, seed, own, chosen_scores=best, **changes))
    return pd.DataFrame(rows, columns=["folder", *PLAIN, *NESTED])


WORLD = {
    "excess": {0.0: (0.9, 0.8, 0.8), 0.4: (0.9, 0.8, 0.6)},
    "uniform": {0.0: (0.9, 0.8, 0.8), 0.4: (0.85, 0.7, 0.7)},
    "mgda": {0.0: (0.7, 0.7, 0.7), 0.4: (0.7, 0.6, 0.5)},
    "single": {0.0: (0.99, 0.99, 0.99), 0.4: (0.99, 0.99, 0.99)},
}


def test_scores_of_every_group_of_tasks_at_both_epochs():
    scores = scores_by_run(frame(WORLD, chosen=0.01))
    row = scores[(scores["label"] == "uniform") & (scores["noise"] == 0.4) & (scores["seed"] == 0)].set_index("epoch")
    assert row.loc[LAST, ["clean", "noisy", "overall"]].tolist() == pytest.approx([77.5, 70, 75])
    assert row.loc[CHOSEN, ["clean", "noisy", "overall"]].tolist() == pytest.approx([78.5, 71, 76])
    errors = scores_by_run(frame(WORLD, metrics=("nmse", False)))
    assert set(errors["epoch"]) == {LAST}, "nothing was chosen"
    clean = errors[(errors["label"] == "mgda") & (errors["noise"] == 0.4)]["clean"]
    assert clean.tolist() == pytest.approx([-0.65] * 4, abs=1e-5), "errors are negative"


def test_comparisons_leave_single_task_networks_out():
    scores = scores_by_run(frame(WORLD))
    table = comparisons(scores, "overall")
    assert list(table.columns) == ["excess", "mgda", "uniform"]
    assert table.index.get_level_values("noise").tolist() == [0.0, 0.4]


def test_a_method_that_was_not_run_everywhere_takes_no_part_and_one_that_diverged_is_last():
    partly = {**WORLD, "rlw": {0.4: (0.99, 0.99, 0.99)}}
    assert "rlw" not in comparisons(scores_by_run(frame(partly)), "clean")
    diverged = {**WORLD, "uniform": {0.0: (0.9, 0.8, 0.8), 0.4: (math.nan,) * 3}}
    ranks = mean_ranks(comparisons(scores_by_run(frame(diverged)), "clean"))
    assert ranks.mean.to_dict() == {"excess": 1.25, "uniform": 2.25, "mgda": 2.5}


def test_one_seed_that_diverged_makes_a_method_last_there():
    rows = frame(WORLD)
    hit = rows.index[(rows["label"] == "excess") & (rows["noise"] == 0.4) & (rows["seed"] == 2)]
    rows.loc[hit, "scores"] = pd.Series([dict.fromkeys(("one", "other", "noisy"))] * len(hit), hit)
    table = comparisons(scores_by_run(rows), "clean")
    assert math.isnan(table.xs(0.4, level="noise")["excess"].item()), "three of four seeds are no mean"
    ranks = mean_ranks(table)
    # At noise 0 it shares the first place with uniform, at 0.4 it is the third of three.
    assert ranks.mean.to_dict() == {"uniform": 1.25, "excess": 2.25, "mgda": 2.5}


def test_mean_ranks_and_the_critical_difference_of_a_textbook():
    # Demšar (2006), section 3.2.2: four methods on 14 data sets, q = 2.291 at 0.10, critical difference 1.12.
    scores = pd.DataFrame([[4.0, 3.0, 2.0, 1.0]] * 10 + [[3.0, 4.0, 2.0, 1.0]] * 4, columns=list("abcd"))
    ranks = mean_ranks(scores)
    assert ranks.mean.to_dict() == pytest.approx({"a": 18 / 14, "b": 24 / 14, "c": 3, "d": 4})
    assert ranks.critical_difference == pytest.approx(1.12, abs=0.005)
    assert ranks.p_value < 1e-6
    assert mean_ranks(scores.iloc[:1]).p_value != mean_ranks(scores.iloc[:1]).p_value, "one comparison proves nothing"


def test_settings_on_the_same_data_count_once_in_mean_ranks():
    # a is first in three settings on one data set, b in one setting on each of two others.
    scores = pd.DataFrame([[2.0, 1.0]] * 3 + [[1.0, 2.0]] * 2, columns=["a", "b"])
    pooled, blocked = mean_ranks(scores), mean_ranks(scores, ["x", "x", "x", "y", "z"])
    assert pooled.mean.to_dict() == {"a": 1.4, "b": 1.6}
    assert blocked.mean.to_dict() == pytest.approx({"b": 4 / 3, "a": 5 / 3})
    assert list(blocked.mean.index) == ["b", "a"]
    assert (blocked.comparisons, blocked.blocks) == (5, 3)
    assert blocked.critical_difference == pytest.approx(pooled.critical_difference * (5 / 3) ** 0.5)


def test_a_rival_dominates_only_where_it_is_better_in_both():
    assert dominating(judgements(frame(WORLD))).empty
    better = {**WORLD, "uniform": {0.0: (0.9, 0.8, 0.8), 0.4: (0.91, 0.81, 0.7)}}
    found = dominating(judgements(frame(better)))
    assert found.to_dict("records") == [{"setting": "toy", "noise": 0.4, "rival": "uniform"}]
    little = {**WORLD, "uniform": {0.4: (0.902, 0.802, 0.7)}}
    assert dominating(judgements(frame(little))).empty, "0.2 points on clean tasks are equivalent"


def test_a_method_stands_among_its_rivals_as_its_worst_comparison_says():
    found = judgements(frame(WORLD))
    assert set(found["rival"]) == {"uniform", "mgda"}, "not itself at noise 0"
    places = standings(found).set_index(["noise", "measure"])["verdict"]
    assert places.to_dict() == {
        (0.0, "clean"): "equivalent",
        (0.0, "overall"): "equivalent",
        (0.4, "clean"): "better",
        (0.4, "overall"): "better",  # 76.7 against 75.0
    }
    found = judgements(frame({**WORLD, "uniform": {0.4: (0.85, 0.8, 0.72)}}))
    lost = found[found["verdict"] == "worse"]
    assert lost[["measure", "rival"]].to_dict("records") == [{"measure": "overall", "rival": "uniform"}]
    assert lost["tolerance"].tolist() == [0.5]
    assert standings(found).set_index(["noise", "measure"]).loc[(0.4, "overall"), "verdict"] == "worse"
