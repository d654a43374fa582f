"""Verdicts on the paper's claims: they follow the runs, whichever way these go."""

import itertools

import pandas as pd
import pytest

from excessmtl.lab.compare.comparison import Comparison
from excessmtl.lab.paper.claims.measures import Difference
from excessmtl.lab.paper.claims.verdicts import JUDGES, verdicts
from excessmtl.lab.paper.methods import (
    GRADNORM,
    GROUPDRO,
    IMTL,
    MGDA,
    PAPER,
    SINGLE_TASK,
    UNIFORM,
)
from made_up_runs import PACS, as_frame, made_up_run, with_tasks_called, write_course
from worlds import RIGHT, WRONG, multimnist, office_home, sarcos, world

NEVER_TRIED = (
    "which GradNorm and MGDA favour",
    "all data must be standardised",
    "weight decay prevents it",
    "the mean over a warm-up is not",
    "prohibitive for many tasks",
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


def matching(found, fragment):
    (one,) = [verdict for verdict in found if fragment in verdict.claim]
    return one


@pytest.fixture(scope="module")
def right():
    return verdicts(world(True))


@pytest.fixture(scope="module")
def wrong():
    return verdicts(world(False))


def test_the_claims_are_numbered_and_complete(right):
    assert [one.number for one in right] == list(range(1, len(JUDGES) + 1))
    assert {one.where[:3] for one in right} == {"3.3", "4.3", "4.4", "C.1", "C.2"}
    assert len(right) >= 50
    assert all(one.claim.endswith(".") and one.rule.endswith(".") and one.evidence for one in right)


def test_where_the_paper_is_right_everything_holds(right):
    untold = {one.claim for one in right if any(part in one.claim for part in (*NEVER_TRIED, *NEED_FOLDERS))}
    assert len(untold) == len(NEVER_TRIED) + len(NEED_FOLDERS)
    failed = [one for one in right if one.claim not in untold and one.verdict != "holds"]
    assert failed == []
    assert {one.verdict for one in right if one.claim in untold} == {"not tried"}


def test_where_it_is_wrong_nothing_holds(wrong):
    assert [one for one in wrong if one.verdict == "holds"] == []
    assert sum(one.verdict == "does not hold" for one in wrong) == len(wrong) - len(NEVER_TRIED) - len(NEED_FOLDERS)


def test_stand_ins_are_evidence_and_no_verdict():
    found = verdicts(as_frame(office_home(True, "digit-domains") + sarcos(True, "simulated-arm")))
    assert {one.verdict for one in found} == {"not tried"}
    flat = matching(found, "On SARCOS ExcessMTL keeps its performance")
    assert flat.evidence.startswith("SARCOS at the paper's scale is not in the runs. On Simulated 7-joint arm")
    assert "(stand-in for SARCOS), the rule is met: ExcessMTL (paper): as claimed" in flat.evidence


def test_pictures_of_another_tree_are_not_office_home():
    frame = as_frame(office_home(True))
    # What a source says about itself proves nothing.
    frame = with_tasks_called(frame, PACS).assign(source="pacs64.tar.xz: 9,991 pictures, 4 domains, 65 classes, 64 px")
    one = matching(verdicts(frame), "clean tasks are least affected")
    assert one.verdict == "not tried"
    assert "Pacs64.tar.xz" in one.evidence


def test_evidence_shows_both_forms_and_the_robust_one(right):
    evidence = matching(right, "keeps its clean accuracy at all noise levels").evidence
    assert [name for name in ("(paper):", "(paper, normalised):", "(ours, robust):") if name in evidence] == [
        "(paper):",
        "(paper, normalised):",
        "(ours, robust):",
    ]


def test_one_form_of_the_papers_estimate_is_enough_and_ours_is_not():
    frame = world(True)
    ruined = frame.copy()
    hit = (ruined.label == f"label of {PAPER}") & (ruined.noise > 0)
    ruined.loc[hit, "clean_score"] = 0.2
    claim = "keeps its clean accuracy at all noise levels"
    assert matching(verdicts(ruined), claim).verdict == "holds"
    both = ruined.copy()
    both.loc[both.label.str.contains("normalised") & (both.noise > 0), "clean_score"] = 0.2
    assert matching(verdicts(both), claim).verdict == "does not hold"


def test_a_missing_rival_leaves_a_claim_about_all_of_them_open():
    frame = world(True)
    without = frame[frame.method != "imtl"]
    claim = "all adaptive methods but ExcessMTL falls monotonically"
    one = matching(verdicts(without), claim)
    assert one.verdict == "not tried"
    assert "IMTL: not in the runs" in one.evidence
    worse = without.copy()
    worse.loc[worse.method == "mgda", "clean_score"] = 0.9
    assert matching(verdicts(worse), claim).verdict == "does not hold"


def test_a_rise_on_the_way_is_not_a_monotone_decline():
    frame = world(True)
    frame.loc[(frame.benchmark == "multimnist") & (frame.method == "mgda") & (frame.noise == 0.8), "clean_score"] = 0.95
    one = matching(verdicts(frame), "all adaptive methods but ExcessMTL falls monotonically")
    assert one.verdict == "does not hold"
    assert "not monotonically" in one.evidence


def test_an_empty_table_says_not_tried_everywhere():
    assert {one.verdict for one in verdicts(world(True).iloc[:0])} == {"not tried"}


@pytest.mark.parametrize(
    ("by_seed", "clear", "ahead"),
    [
        ((2.0, 1.9, 2.1), True, True),
        ((0.5, 0.6, 0.55), False, True),
        ((0.1, 0.0, -0.1), False, False),
        ((-2.0, -1.9, -2.1), False, False),
        ((0.5, 0.9, 1.0), "undecided", True),
        ((9.0, -5.0, 2.0), "undecided", "undecided"),
        ((2.0, 2.0), "undecided", "undecided"),
    ],
)
def test_a_difference_counts_above_the_margin_and_not_by_luck(by_seed, clear, ahead):
    difference = Difference(Comparison.of(by_seed, 1.0), "points")
    assert (difference.clear, difference.ahead) == (clear, ahead)


def test_spread_between_seeds_leaves_a_flat_line_undecided():
    frame = world(RIGHT)
    claim = "Uniform weighting withstands the noise as well"
    assert matching(verdicts(frame), claim).verdict == "holds"
    noisy = (frame.benchmark == "multimnist") & (frame.method == "uniform") & (frame.noise > 0)
    wide = frame.copy()
    wide.loc[noisy, "clean_score"] = frame.clean_score[noisy] + 0.05 * (frame.seed[noisy] - 1)
    one = matching(verdicts(wide), claim)
    assert one.verdict == "undecided"
    assert "Uniform: undecided" in one.evidence


def test_one_diverged_seed_is_a_decline():
    frame = world(RIGHT)
    hit = (frame.benchmark == "multimnist") & (frame.method == "uniform") & (frame.noise == 1) & (frame.seed == 0)
    frame.loc[hit, "clean_score"] = None
    assert matching(verdicts(frame), "Uniform weighting withstands the noise as well").verdict == "does not hold"


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
    found = verdicts(as_frame([row | other for row in multimnist(RIGHT)]))
    assert {one.verdict for one in found} == {"not tried"}
    one = matching(found, "Uniform weighting withstands the noise as well")
    assert one.evidence.startswith("MultiMNIST at the paper's scale is not in the runs. On MultiMNIST")
    assert "the rule is met" in one.evidence


def test_two_seeds_are_no_verdict():
    frame = world(RIGHT)
    found = verdicts(frame[frame.seed < 2])
    assert {one.verdict for one in found} == {"not tried"}
    assert "only 2 of 3 seeds of Uniform" in matching(found, "Uniform weighting withstands the noise as well").evidence


def test_runs_of_two_learning_rates_are_not_six_seeds():
    frame = world(RIGHT)
    again = frame[frame.method == "uniform"].assign(learning_rate=0.5, folder="elsewhere")
    found = verdicts(pd.concat([frame.assign(learning_rate=0.1), again], ignore_index=True))
    one = matching(found, "Uniform weighting withstands the noise as well")
    assert one.verdict == "not tried"
    assert "no run of Uniform" in one.evidence or "runs of Uniform without noise" in one.evidence


def test_the_same_run_twice_is_refused_by_name():
    frame = world(RIGHT)
    again = frame[frame.method == "uniform"].assign(folder="elsewhere")
    with pytest.raises(ValueError, match="and elsewhere are two runs of Uniform on multimnist at noise 0 with seed 0"):
        verdicts(pd.concat([frame, again], ignore_index=True))


def test_a_better_noisy_task_with_more_weight_on_it_is_not_what_the_paper_means():
    frame = world(RIGHT)
    frame.loc[(frame.benchmark == "multimnist") & (frame.method == "excess"), "clean_weight"] = 0.1
    assert matching(verdicts(frame), "ExcessMTL also learns it better").verdict == "does not hold"


def test_an_extreme_case_may_be_the_one_that_is_missing():
    frame = world(WRONG)
    claim = "left with no weight at all"
    assert matching(verdicts(frame), claim).verdict == "does not hold"
    assert matching(verdicts(frame[frame.method != "groupdro"]), claim).verdict == "not tried"


@pytest.mark.parametrize(("factor", "verdict"), [(20, "holds"), (3, "does not hold")])
def test_the_cost_of_many_tasks(factor, verdict):
    scores = {f"school_{i}": 0.5 for i in range(120)}
    rows = []
    for shown, seconds, seed in [(MGDA, 0.01 * factor, seed) for seed in range(3)] + [
        (PAPER, 0.01, s) for s in range(3)
    ]:
        row = made_up_run("multimnist", shown, 0.0, seed, clean=0.9, noisy=0.9, weight=0.5)
        kinds = {
            "primary_metric": dict.fromkeys(scores, "accuracy"),
            "higher_is_better": dict.fromkeys(scores, True),
            "units": dict.fromkeys(scores, "share"),
        }
        rows.append(row | {"benchmark": "school", "scores": scores, "seconds_per_step": seconds, **kinds})
    assert matching(verdicts(as_frame(rows)), "prohibitive for many tasks").verdict == verdict


@pytest.mark.parametrize(("wide", "verdict"), [(0.3, "holds"), (0.05, "does not hold")])
def test_the_use_of_a_warm_up(wide, verdict):
    rows = []
    for warmup, spread in ((0, wide), (100, 0.05)):
        for seed in range(3):
            row = made_up_run("multimnist", PAPER, 0.0, seed, clean=0.9, noisy=0.9, weight=0.5 + spread * (seed - 1))
            options = {"estimator": "paper", "normalize": "initial", "warmup_steps": warmup}
            rows.append(row | {"options": options, "label": f"warm-up {warmup}"})
    assert matching(verdicts(as_frame(rows)), "the mean over a warm-up is not").verdict == verdict


def test_runs_that_diverged_are_no_numbers():
    frame = world(True)
    frame.loc[(frame.method == "uniform") & (frame.benchmark == "multimnist"), "clean_score"] = None
    one = matching(verdicts(frame), "Uniform weighting withstands the noise as well")
    assert one.verdict == "not tried"
    assert "only diverged runs of Uniform" in one.evidence


# ---------------------------------------------------------------------- what happens during training


def dynamics_frame(root, paper_is_right):
    """Courses at noise 0.6 and 0.8 in which the paper is right, or the opposite."""
    tasks, noisy = ["top_left", "bottom_right"], ["bottom_right"]
    right = paper_is_right
    final = {GRADNORM: 0.9, GROUPDRO: 0.95, IMTL: 0.52, MGDA: 0.48, PAPER: 0.1, UNIFORM: 0.5, SINGLE_TASK: 0.5}
    early = {GRADNORM: 0.8, GROUPDRO: 0.8, IMTL: 0.9, MGDA: 0.9, PAPER: 0.3, UNIFORM: 0.5, SINGLE_TASK: 0.5}
    rows = []
    for shown, end in final.items():
        for noise, seed in itertools.product((0.6, 0.8), range(3)):
            row = made_up_run(
                "multimnist",
                shown,
                noise,
                seed,
                clean=0.9,
                noisy=0.5,
                weight=0.5,
                losses=(0.5 if right and shown in (GRADNORM, GROUPDRO) else 0.1, 0.3),
            )
            rows.append(row)

            def weights(t, is_noisy, start=early[shown], end=end):
                share = start if t < 0.3 else end
                share = share if right else 1 - share if share != 0.5 else 0.5
                return share if is_noisy else 1 - share

            def losses(t, is_noisy, shown=shown):
                floor = 1.0 if is_noisy else 0.5 if shown in (GRADNORM, GROUPDRO) and right else 0.1
                height = 1.0 if is_noisy == right else 2.0
                return floor + height * (1 - t) ** 4

            def risks(t, is_noisy):
                return (1.0 if is_noisy else 2.0) * (1 - t) ** 4 if right else (3.0 if is_noisy else 1.0) + t

            write_course(root / row["folder"], tasks, noisy, weights=weights, losses=losses, risks=risks)
    return as_frame(rows)


@pytest.mark.parametrize("paper_is_right", [True, False])
def test_claims_about_training_read_the_run_folders(tmp_path, paper_is_right):
    frame = dynamics_frame(tmp_path, paper_is_right)
    found = verdicts(frame, tmp_path)
    wanted = "holds" if paper_is_right else "does not hold"
    assert {part: matching(found, part).verdict for part in NEED_FOLDERS} == dict.fromkeys(NEED_FOLDERS, wanted)
    assert {matching(verdicts(frame), part).verdict for part in NEED_FOLDERS} == {"not tried"}
