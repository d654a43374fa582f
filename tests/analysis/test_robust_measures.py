"""Ranks, areas under the noise curve, and verdicts on runs in which it is known what holds."""

import math

import pandas as pd
import pytest

from excessmtl.analysis.collect import NESTED, PLAIN
from excessmtl.analysis.ranks import mean_ranks
from excessmtl.analysis.robustness import (
    CHOSEN,
    LAST,
    NO_REGRET,
    comparisons,
    dominating,
    judged,
    noise_areas,
    regretted,
    scores_by_run,
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
    assert row.loc[LAST, ["clean", "noisy", "overall", "worst_clean"]].tolist() == pytest.approx([77.5, 70, 75, 70])
    assert row.loc[CHOSEN, ["clean", "noisy", "overall", "worst_clean"]].tolist() == pytest.approx([78.5, 71, 76, 71])
    errors = scores_by_run(frame(WORLD, metrics=("nmse", False)))
    assert set(errors["epoch"]) == {LAST}, "nothing was chosen"
    worst = errors[(errors["label"] == "mgda") & (errors["noise"] == 0.4)]["worst_clean"]
    assert worst.tolist() == pytest.approx([-0.7] * 4, abs=1e-5), "the largest error"


def test_comparisons_and_areas_leave_single_task_networks_out():
    scores = scores_by_run(frame(WORLD))
    table = comparisons(scores, "overall")
    assert list(table.columns) == ["excess", "mgda", "uniform"]
    assert table.index.get_level_values("noise").tolist() == [0.0, 0.4]
    areas = noise_areas(scores, "noisy")
    assert areas.loc["toy"].to_dict() == pytest.approx({"excess": 70, "mgda": 60, "uniform": 75})


def test_a_method_that_was_not_run_everywhere_takes_no_part_and_one_that_diverged_is_last():
    partly = {**WORLD, "rlw": {0.4: (0.99, 0.99, 0.99)}}
    assert "rlw" not in comparisons(scores_by_run(frame(partly)), "clean")
    diverged = {**WORLD, "uniform": {0.0: (0.9, 0.8, 0.8), 0.4: (math.nan,) * 3}}
    ranks = mean_ranks(comparisons(scores_by_run(frame(diverged)), "clean"))
    assert ranks.mean.to_dict() == {"excess": 1.25, "uniform": 2.25, "mgda": 2.5}


def test_mean_ranks_and_the_critical_difference_of_a_textbook():
    # Demšar (2006), section 3.2.2: four methods on 14 data sets, q = 2.291 at 0.10, critical difference 1.12.
    scores = pd.DataFrame([[4.0, 3.0, 2.0, 1.0]] * 10 + [[3.0, 4.0, 2.0, 1.0]] * 4, columns=list("abcd"))
    ranks = mean_ranks(scores)
    assert ranks.mean.to_dict() == pytest.approx({"a": 18 / 14, "b": 24 / 14, "c": 3, "d": 4})
    assert ranks.critical_difference == pytest.approx(1.12, abs=0.005)
    assert ranks.p_value < 1e-6
    assert ranks.cliques == [["a", "b"], ["c", "d"]]
    assert mean_ranks(scores.iloc[:1]).p_value != mean_ranks(scores.iloc[:1]).p_value, "one comparison proves nothing"


def test_a_rival_dominates_only_where_it_is_better_in_both():
    assert dominating(frame(WORLD)).empty
    better = {**WORLD, "uniform": {0.0: (0.9, 0.8, 0.8), 0.4: (0.91, 0.81, 0.7)}}
    assert dominating(frame(better)).to_dict("records") == [{"setting": "toy", "noise": 0.4, "rival": "uniform"}]
    little = {**WORLD, "uniform": {0.4: (0.902, 0.802, 0.7)}}
    assert dominating(frame(little)).empty, "0.2 points on clean tasks are within the tolerance"


def test_regret_is_counted_for_clean_tasks_and_overall():
    lost, count = regretted(frame(WORLD))
    assert count == 4, "two levels, two groups of tasks"
    assert lost.empty, "75.0 overall against 76.7"
    lost, _ = regretted(frame({**WORLD, "uniform": {0.4: (0.85, 0.8, 0.72)}}))
    assert lost[["measure", "rival"]].to_dict("records") == [{"measure": "overall", "rival": "uniform"}]
    assert lost["tolerance"].tolist() == [0.5]
    assert set(judged(frame(WORLD), NO_REGRET)["rival"]) == {"uniform", "mgda"}, "not itself at noise 0"
