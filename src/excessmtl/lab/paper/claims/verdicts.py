"""Every empirical claim of the paper (Secs. 3.3, 4.3, 4.4, appendix C), judged by collected runs.

`claims.yaml` has each claim with the rule it is judged by, in words; here is each rule as a function. A verdict is what
the rule gives, whichever way it goes: "undecided" where the intervals over the seeds leave it open, "not tried" without
runs of at least three seeds on the paper's data at the paper's scale.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd
import yaml

from excessmtl.lab.compare.comparison import UNDECIDED, Answer
from excessmtl.lab.paper.claims import questions as ask
from excessmtl.lab.paper.claims import summary, training
from excessmtl.lab.paper.claims.judging import (
    Finding,
    Judge,
    all_of,
    both,
    every,
    excess,
    guarded,
    in_words,
    no,
    some,
    untold,
)
from excessmtl.lab.paper.claims.measures import OVERALL, clean_loss, noisy_loss
from excessmtl.lab.paper.claims.questions import DEPTH, HIGH, NORMALS, SEGMENTATION
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, GRADNORM, GROUPDRO, IMTL, MGDA, MOML, SINGLE_TASK, UNIFORM
from excessmtl.lab.paper.subjects import DATA, Runs

Judgement = Literal["holds", "does not hold", "undecided", "not tried"]
_WORDS: dict[Answer | None, Judgement] = {
    True: "holds",
    False: "does not hold",
    UNDECIDED: "undecided",
    None: "not tried",
}
_alone_without, _alone_with = (partial(ask.as_good_as_alone, noise=noise) for noise in (0.0, HIGH))
_clean_task_suffers = partial(ask.declines, noise=HIGH, pick=clean_loss)
_best_of_all = partial(ask.beats_all, rivals=(*ADAPTIVE_RIVALS, UNIFORM))
_only_excess_favours_clean = both(excess(ask.favours_clean), every(ADAPTIVE_RIVALS, no(ask.favours_clean)))
JUDGES: Mapping[str, Judge] = {
    "gradnorm-favours-noise": every([GRADNORM], ask.favours_noisy),
    "small-gradients": untold("runs do not record the norms of gradients"),
    "mgda-favours-noise": every([MGDA], ask.favours_noisy),
    "groupdro-favours-noise": every([GROUPDRO], all_of(ask.favours_noisy, ask.behind_uniform)),
    "imtl-is-misguided": every([IMTL], ask.declines),
    "mgda-is-slow": every([MGDA], ask.slow_with_many_tasks),
    "noisy-risk-is-lower-at-first": training.on_courses(training.lower_at_first),
    "risks-approach-zero": training.on_courses(training.approach_zero),
    "estimate-matches": training.on_courses(training.matches),
    "loss-weighting-favours-noise": every((GRADNORM, GROUPDRO), training.rapidly_substantial),
    "gradient-weighting-becomes-uniform": every((IMTL, MGDA), training.first_noisy_then_uniform),
    "rivals-lose-clean-accuracy": every(ADAPTIVE_RIVALS, partial(ask.declines, noise=HIGH)),
    "excess-favours-clean-throughout": excess(training.clean_from_the_start),
    "excess-learns-noisy-better": excess(ask.learns_noisy_better),
    "excess-is-best-under-noise": excess(
        all_of(partial(ask.beats_all, noise=HIGH), partial(ask.beats_all, noise=HIGH, pick=OVERALL))
    ),
    "noise-raises-loss-alone": every([SINGLE_TASK], partial(ask.declines, noise=HIGH, pick=noisy_loss)),
    "all-reach-single-task-losses": both(every(ADAPTIVE_RIVALS, _alone_without), excess(_alone_without)),
    "only-excess-stays-close": both(excess(_alone_with), every(ADAPTIVE_RIVALS, no(_alone_with))),
    "noise-harms-the-other-task": both(every(ADAPTIVE_RIVALS, _clean_task_suffers), excess(no(_clean_task_suffers))),
    "loss-weighting-strives-for-equal-losses": every((GRADNORM, GROUPDRO), training.strives_for_equal_losses),
    "moml-is-harmed": every([MOML], all_of(partial(ask.declines, pick=OVERALL), ask.declines)),
    "moml-favours-noise": every([MOML], no(ask.favours_clean)),
    "moml-behind-at-low-noise": every([MOML], no(partial(ask.ahead_of_mgda, least=0.0, most=0.4))),
    "moml-ahead-at-high-noise": every([MOML], partial(ask.ahead_of_mgda, least=0.6, most=1.0)),
    "moml-weights-are-steadier": every([MOML], ask.steadier_weights_than_mgda),
    "excess-beats-moml-and-mgda": excess(ask.at_every_level(partial(ask.beats_all, rivals=(MOML, MGDA), pick=OVERALL))),
    "multimnist-rivals-decline": every(ADAPTIVE_RIVALS, ask.declines_monotonically),
    "multimnist-rivals-favour-noise": every(ADAPTIVE_RIVALS, ask.favours_noisy),
    "multimnist-clean-task-starves": some(ADAPTIVE_RIVALS, ask.has_no_clean_weight),
    "multimnist-only-excess-favours-clean": _only_excess_favours_clean,
    "multimnist-excess-is-flat": excess(ask.stays_flat),
    "multimnist-uniform-is-flat": every([UNIFORM], ask.stays_flat),
    "multimnist-tasks-hardly-interfere": every([UNIFORM], ask.close_to_single_task),
    "multimnist-excess-beats-uniform": excess(ask.ahead_of_uniform),
    "office-home-excess-is-least-affected": excess(ask.least_affected),
    "office-home-rivals-fail": every(ADAPTIVE_RIVALS, ask.fails),
    "office-home-uniform-is-beaten": ask.uniform_is_beaten,
    "office-home-only-excess-favours-clean": _only_excess_favours_clean,
    "nyuv2-excess-is-best": excess(
        ask.at_every_level(all_of(partial(_best_of_all, pick=DEPTH), partial(_best_of_all, pick=NORMALS)))
    ),
    "nyuv2-rivals-favour-noise": every(ADAPTIVE_RIVALS, ask.favours_noisy),
    "nyuv2-rivals-fail": every(ADAPTIVE_RIVALS, ask.fails_dramatically),
    "nyuv2-normals-are-undertrained": every((GROUPDRO, UNIFORM), ask.undertrains_normals),
    "nyuv2-excess-is-balanced": excess(
        partial(ask.beats_all, rivals=(UNIFORM, GROUPDRO), noise=0.0, pick=NORMALS, clearly=True)
    ),
    "nyuv2-segmentation-declines": every(
        (*ADAPTIVE_RIVALS, UNIFORM), partial(ask.declines_monotonically, pick=SEGMENTATION)
    ),
    "noise-harms-all-tasks": summary.on_all(summary.noise_harms_most),
    "excess-is-best-everywhere": summary.on_all(summary.everywhere(partial(ask.beats_all, pick=OVERALL))),
    "excess-costs-nothing": summary.on_all(
        summary.everywhere(partial(ask.not_behind_the_best, noise=0.0, pick=OVERALL))
    ),
    "only-excess-is-consistent": summary.on_all(summary.only_excess_is_consistent),
    "data-must-be-standardised": untold("no run on data that is not standardised"),
    "weight-decay-prevents-fitting-noise": untold("no study of weight decay has been run"),
    "warm-up-steadies": ask.warm_up_steadies,
    "sarcos-rivals-favour-noise": every(ADAPTIVE_RIVALS, ask.favours_noisy),
    "sarcos-rivals-decline": every(ADAPTIVE_RIVALS, ask.declines),
    "sarcos-excess-is-flat": excess(ask.stays_flat),
    "sarcos-excess-is-better": excess(
        all_of(partial(ask.beats_all, clearly=True), partial(ask.beats_all, clearly=True, pick=OVERALL))
    ),
    "sarcos-uniform-does-well": both(every([UNIFORM], ask.stays_flat), every([UNIFORM], ask.close_to_the_best)),
}
"""By the names in claims.yaml."""


@dataclass(frozen=True)
class Verdict:
    """What runs say about one claim."""

    number: int
    where: str
    """Section and figure of the paper."""
    claim: str
    """In our words."""
    verdict: Judgement
    evidence: str
    """The numbers behind it."""
    rule: str
    """What "holds" means here."""


def verdicts(frame: pd.DataFrame, root: Path | None = None) -> list[Verdict]:
    """A verdict on each claim, in the order of the paper.

    Args:
        frame: runs as `compare.collect.collect` gives them, of any benchmarks.
        root: the folder they were collected from. Claims about what happens during training need the run folders and
            are "not tried" without.
    """
    return judge_all(Runs.of(frame, root))


def judge_all(runs: Runs) -> list[Verdict]:
    """The same for runs that know where their folders are."""
    claims = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8"))
    found = []
    for number, (name, words) in enumerate(claims.items(), start=1):
        finding = _finding(JUDGES[name], words.get("data"), runs)
        judgement = _WORDS[finding.holds]
        found.append(Verdict(number, words["where"], words["claim"], judgement, finding.evidence, words["rule"]))
    return found


def _finding(judge: Judge, data: str | None, runs: Runs) -> Finding:
    """By the paper's own data at the paper's scale; what other runs say is evidence, not a verdict.

    `data`: the data set of the paper that the claim is about; None: all runs together.
    """
    if data is None:
        return judge(runs)
    found = runs.subjects(data)
    finding = Finding(None, f"{DATA[data].title} at the paper's scale is not in the runs")
    if found and found[0].is_at_the_papers_scale:
        finding, found = guarded(judge, found[0]), found[1:]
    aside = [f"On {subject.title}, {in_words(guarded(judge, subject))}" for subject in found]
    return Finding(finding.holds, ". ".join([finding.evidence, *aside]))
