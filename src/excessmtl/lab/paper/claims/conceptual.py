"""Section 3.3: what each rival does with a noisy task. The paper refers to its MultiMNIST runs for it."""

from functools import partial

from excessmtl.lab.compare.comparison import SEEDS
from excessmtl.lab.paper.claims.judging import Claim, Finding, all_of, every, untold
from excessmtl.lab.paper.claims.measures import OVERALL, Lacking, advantage, high_noise
from excessmtl.lab.paper.claims.rules import declines, favours_noisy
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.methods import GRADNORM, GROUPDRO, IMTL, MGDA, PAPER, UNIFORM
from excessmtl.lab.paper.subjects import Subject

_MANY, _PROHIBITIVE = 100, 10


def _behind_uniform(subject: Subject, shown: str) -> Finding:
    behind = advantage(subject, UNIFORM, shown, high_noise(subject, shown), OVERALL)
    return Finding(behind.clear, f"overall score behind uniform by {behind}")


def _slow_with_many_tasks(runs: Runs, shown: str) -> Finding:
    many = runs.frame[runs.frame.scores.map(len) >= _MANY]
    own = [many[many.shown == name] for name in (shown, PAPER)]
    seconds = [timed.seconds_per_step.mean() for timed in own if timed.seed.nunique() >= SEEDS]
    if len(seconds) < len(own) or not min(seconds) > 0:
        raise Lacking(f"runs of {shown} and {PAPER} with at least 100 tasks, three seeds each")
    factor = seconds[0] / seconds[1]
    return Finding(factor > _PROHIBITIVE, f"{factor:.1f} times as long")


_claim, _about_all_runs = partial(Claim, "3.3", "multimnist"), partial(Claim, "3.3", None)
CLAIMS = (
    _claim(
        "GradNorm takes the slow training of noisy tasks for lack of training and gives them high weights.",
        "GradNorm's clean weight at the highest noise level is below that of uniform weighting and at least 0.05 lower "
        "than without noise (90 % interval above 0).",
        every([GRADNORM], favours_noisy),
    ),
    _about_all_runs(
        "The loss of a noisy task is flatter and its gradient smaller, which GradNorm and MGDA favour.",
        "Not judged: it needs the norms of the tasks' gradients during training, which runs do not record.",
        untold("runs do not record the norms of gradients"),
    ),
    _claim(
        "MGDA favours the noisy task, whose gradient is smaller.",
        "MGDA's clean weight at the highest noise level is below that of uniform weighting and at least 0.05 lower "
        "than without noise (90 % interval above 0).",
        every([MGDA], favours_noisy),
    ),
    _claim(
        "GroupDRO gives excessive weight to noisy tasks, neglects the others, and all of it gets worse.",
        "GroupDRO's clean weight at the highest noise level is below that of uniform weighting and at least 0.05 lower "
        "than without noise, and its overall score there is more than 1 point below uniform weighting's (90 % "
        "intervals above 0 from three seeds on).",
        every([GROUPDRO], all_of(favours_noisy, _behind_uniform)),
    ),
    _claim(
        "The gradient of a noisy task distorts IMTL's direction and damps or misguides training.",
        "IMTL's clean score at the highest noise level is clearly below that without noise (more than 1 point, 90 % "
        "interval above 0).",
        every([IMTL], declines),
    ),
    _about_all_runs(
        "MGDA compares all pairs of tasks, which is prohibitive for many tasks.",
        "On data with at least 100 tasks a step of MGDA takes more than ten times as long as one of ExcessMTL (paper), "
        "which also needs every task's gradient.",
        every([MGDA], _slow_with_many_tasks),
    ),
)
