"""Verdicts on the paper's claims: they follow the runs, whichever way these go."""

import itertools

import pandas as pd
import pytest

from excessmtl.lab.compare.comparison import UNDECIDED
from excessmtl.lab.paper.claims.findings import Finding, most, opposite
from excessmtl.lab.paper.claims.verdicts import verdicts
from excessmtl.lab.paper.subjects import GRADNORM, GROUPDRO, IMTL, MGDA, PAPER, SINGLE_TASK, UNIFORM, Runs
from made_up_runs import PACS, as_frame, made_up_run, with_tasks_called, write_course
from report_data import made_up
from worlds import RIGHT, WRONG, multimnist, office_home, sarcos, world

NEVER_TRIED = (
    "which GradNorm and MGDA favour",
    "all data must be standardised",
    "weight decay prevents it",
    "the mean over a warm-up is not",
    "prohibitive for many tasks",
    "depend less on the noise level than MGDA's",
    "withstands noise on some data and not on other",
)
NEED_FOLDERS = (
    "At first the noisy task has the lower excess risk",
    "the excess risks of both tasks approach 0",
    "the estimate matches the true excess risk",
    "rapidly give the noisy task substantial weight",
    "begin with much weight on the noisy task",
    "gives most weight to the clean task, from the beginning",
    "Loss weighting strives for equal losses",
)


def judged(frame, root=None):
    return verdicts(Runs.of(frame, root))


def matching(found, fragment):
    (one,) = [verdict for verdict in found if fragment in verdict.claim]
    return one


@pytest.fixture(scope="module")
def right():
    return judged(world(True))


@pytest.fixture(scope="module")
def wrong():
    return judged(world(False))


def test_the_claims_are_numbered_and_complete(right):
    assert [one.number for one in right] == list(range(1, 57))
    assert {one.where[:3] for one in right} == {"3.3", "4.3", "4.4", "C.1", "C.2"}
    assert all(one.claim.endswith(".") and one.rule.endswith(".") and one.evidence for one in right)


def test_where_the_paper_is_right_everything_holds(right):
    untold = {one.claim for one in right if any(part in one.claim for part in (*NEVER_TRIED, *NEED_FOLDERS))}
    assert len(untold) == len(NEVER_TRIED) + len(NEED_FOLDERS)
    assert [one for one in right if one.claim not in untold and one.verdict != "holds"] == []
    assert {one.verdict for one in right if one.claim in untold} == {"not tried"}


def test_where_it_is_wrong_nothing_holds(wrong):
    assert [one for one in wrong if one.verdict == "holds"] == []
    assert sum(one.verdict == "does not hold" for one in wrong) == len(wrong) - len(NEVER_TRIED) - len(NEED_FOLDERS)


FLAT, FALLS = "keeps its clean accuracy at all noise levels", "all adaptive methods but ExcessMTL falls monotonically"
UNIFORM_FLAT, STARVES = "Uniform weighting withstands the noise as well", "left with no weight at all"


def test_evidence_shows_both_forms_and_the_robust_one(right):
    evidence = matching(right, FLAT).evidence
    assert all(f"{form}:" in evidence for form in ("(paper)", "(paper, normalised)", "(ours, robust)"))


DROPPED = "dropped"
DIGITS = "benchmark == 'multimnist' and "
CHANGES = [
    # One form of the paper's estimate is enough, ours is not.
    (f"label == 'label of {PAPER}' and noise > 0", 0.2, FLAT, "holds", ""),
    ("label.str.contains('paper') and noise > 0", 0.2, FLAT, "does not hold", ""),
    ("method == 'imtl'", DROPPED, FALLS, "not tried", "IMTL: not in the runs"),
    ("method == 'mgda'", 0.9, FALLS, "does not hold", ""),
    (f"{DIGITS} method == 'mgda' and noise == 0.8", 0.95, FALLS, "does not hold", "not monotonically"),
    (f"{DIGITS} method == 'uniform' and noise == 1 and seed == 0", None, UNIFORM_FLAT, "does not hold", ""),
    (f"{DIGITS} method == 'uniform'", None, UNIFORM_FLAT, "not tried", "only diverged runs of Uniform"),
    ("seed == 2", DROPPED, UNIFORM_FLAT, "not tried", "only 2 of 3 seeds of Uniform"),
]


@pytest.mark.parametrize(("rows", "clean_score", "claim", "verdict", "evidence"), CHANGES)
def test_other_scores_and_missing_runs_change_the_verdict(right, rows, clean_score, claim, verdict, evidence):
    assert matching(right, claim).verdict == "holds"
    frame = world(RIGHT)
    hit = frame.query(rows).index
    if clean_score == DROPPED:
        frame = frame.drop(hit)
    else:
        frame.loc[hit, "clean_score"] = clean_score
    one = matching(judged(frame), claim)
    assert one.verdict == verdict
    assert evidence in one.evidence


def test_spread_between_seeds_leaves_a_flat_line_undecided():
    frame = world(RIGHT)
    wide = frame.query(f"{DIGITS} method == 'uniform' and noise > 0").index
    frame.loc[wide, "clean_score"] += 0.05 * (frame.seed[wide] - 1)
    one = matching(judged(frame), UNIFORM_FLAT)
    assert one.verdict == "undecided"
    assert "Uniform: undecided" in one.evidence


def test_runs_of_two_learning_rates_are_not_six_seeds():
    frame = world(RIGHT)
    again = frame[frame.method == "uniform"].assign(learning_rate=0.5, folder="elsewhere")
    one = matching(judged(pd.concat([frame.assign(learning_rate=0.1), again], ignore_index=True)), UNIFORM_FLAT)
    assert one.verdict == "not tried"
    assert "runs of Uniform without noise" in one.evidence
    with pytest.raises(ValueError, match="and elsewhere are two runs of Uniform on multimnist at noise 0 with seed 0"):
        judged(pd.concat([frame, again.assign(learning_rate=None)], ignore_index=True))


def test_a_better_noisy_task_with_more_weight_on_it_is_not_what_the_paper_means():
    frame = world(RIGHT)
    frame.loc[frame.query(f"{DIGITS} method == 'excess'").index, "clean_weight"] = 0.1
    assert matching(judged(frame), "ExcessMTL also learns it better").verdict == "does not hold"


def test_an_extreme_case_may_be_the_one_that_is_missing(wrong):
    assert matching(wrong, STARVES).verdict == "does not hold"
    assert matching(judged(world(WRONG).query("method != 'groupdro'")), STARVES).verdict == "not tried"


def test_an_empty_table_says_not_tried_everywhere():
    assert {one.verdict for one in judged(world(True).iloc[:0])} == {"not tried"}


def test_stand_ins_are_evidence_and_no_verdict():
    found = judged(as_frame(office_home(True, "digit-domains") + sarcos(True, "simulated-arm")))
    assert {one.verdict for one in found} == {"not tried"}
    flat = matching(found, "On SARCOS ExcessMTL keeps its performance")
    assert flat.evidence.startswith("SARCOS at the paper's scale is not in the runs. On Simulated 7-joint arm")
    assert "(stand-in for SARCOS), the rule is met: ExcessMTL (paper): as claimed" in flat.evidence


def test_shorter_runs_on_the_same_data_are_each_told():
    rows = [row | {"epochs": epochs} for epochs in (3, 4) for row in multimnist(RIGHT)]
    assert matching(judged(as_frame(rows)), UNIFORM_FLAT).evidence.count("the rule is met") == 2


def test_pictures_of_another_tree_are_not_office_home():
    frame = as_frame(office_home(True))
    # What a source says about itself proves nothing.
    frame = with_tasks_called(frame, PACS).assign(source="pacs64.tar.xz: 9,991 pictures, 4 domains, 65 classes, 64 px")
    one = matching(judged(frame), "clean tasks are least affected")
    assert one.verdict == "not tried"
    assert "Pacs64.tar.xz" in one.evidence


@pytest.mark.parametrize(
    "other",
    [
        {"source": "bundled digits, 4,000 + 1,000, 4,000 pairs, canvas 36"},
        {"source": "MNIST, 60,000 + 10,000 digits, 4,000 pairs, canvas 36"},
        {"epochs": 3},
        {"settings": {"limit_batches": 3}},
    ],
)
def test_runs_on_less_data_or_shorter_ones_are_no_verdict(other):
    found = judged(as_frame([row | other for row in multimnist(RIGHT)]))
    assert {one.verdict for one in found} == {"not tried"}
    one = matching(found, UNIFORM_FLAT)
    assert one.evidence.startswith("MultiMNIST at the paper's scale is not in the runs. On MultiMNIST")
    assert "the rule is met" in one.evidence


@pytest.mark.parametrize(("factor", "verdict"), [(20, "holds"), (3, "does not hold")])
def test_the_cost_of_many_tasks(factor, verdict):
    scores = {f"school_{i}": 0.5 for i in range(120)}
    rows = [
        made_up(method, 0.0, seed, scores, noisy_tasks=[], options=options, seconds_per_step=seconds)
        for method, options, seconds in (("mgda", {}, 0.01 * factor), ("excess", {"estimator": "paper"}, 0.01))
        for seed in range(3)
    ]
    assert matching(judged(as_frame(rows)), "prohibitive for many tasks").verdict == verdict


@pytest.mark.parametrize(
    ("answers", "holds"),
    [
        ([True, True, False], True),
        ([True, False], False),
        ([True, UNDECIDED, False], UNDECIDED),
        ([True, UNDECIDED, None, False], None),
    ],
)
def test_most_methods_are_more_than_half(answers, holds):
    assert most([Finding(answer, "") for answer in answers]).holds == holds


# ---------------------------------------------------------------------- what happens during training


EARLY = {GRADNORM: 0.8, GROUPDRO: 0.8, IMTL: 0.9, MGDA: 0.9, PAPER: 0.3, UNIFORM: 0.5, SINGLE_TASK: 0.5}
FINAL = {GRADNORM: 0.9, GROUPDRO: 0.95, IMTL: 0.52, MGDA: 0.48, PAPER: 0.1, UNIFORM: 0.5, SINGLE_TASK: 0.5}
"""The weight of the noisy task where the paper is right."""


def dynamics_frame(root, right):
    """Courses at noise 0.6 and 0.8 in which the paper is right, or the opposite."""
    rows = []
    for shown, noise, seed in itertools.product(FINAL, (0.6, 0.8), range(3)):
        equal = right and shown in (GRADNORM, GROUPDRO)
        scores = {"clean": 0.9, "noisy": 0.5, "weight": 0.5, "losses": (0.5 if equal else 0.1, 0.3)}
        rows.append(made_up_run("multimnist", shown, noise, seed, **scores))

        def weights(t, is_noisy, shown=shown):
            share = (EARLY if t < 0.3 else FINAL)[shown]
            return share if right == is_noisy or share == 0.5 else 1 - share

        def losses(t, is_noisy, equal=equal):
            return (1.0 if is_noisy else 0.5 if equal else 0.1) + (1 if is_noisy == right else 2) * (1 - t) ** 4

        def risks(t, is_noisy):
            return (1.0 if is_noisy else 2.0) * (1 - t) ** 4 if right else (3.0 if is_noisy else 1.0) + t

        curves = {"weights": weights, "losses": losses, "risks": risks}
        write_course(root / rows[-1]["folder"], ["top_left", "bottom_right"], ["bottom_right"], **curves)
    return as_frame(rows)


@pytest.mark.parametrize("paper_is_right", [True, False])
def test_claims_about_training_read_the_run_folders(tmp_path, paper_is_right):
    frame = dynamics_frame(tmp_path, paper_is_right)
    found = judged(frame, tmp_path)
    wanted = "holds" if paper_is_right else "does not hold"
    assert {part: matching(found, part).verdict for part in NEED_FOLDERS} == dict.fromkeys(NEED_FOLDERS, wanted)
    assert {matching(judged(frame), part).verdict for part in NEED_FOLDERS} == {"not tried"}


def test_what_is_missing_has_no_opposite():
    assert [opposite(answer) for answer in (True, False, UNDECIDED, None)] == [False, True, UNDECIDED, None]
