"""Section 3.3: what each rival does with a noisy task. The paper refers to its MultiMNIST runs for it."""

from excessmtl.paper.claims.judging import Check, Finding, every
from excessmtl.paper.claims.measures import OVERALL, Lacking, advantage, high_noise
from excessmtl.paper.claims.rules import declines, favours_noisy
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.collected import Runs
from excessmtl.paper.methods import GRADNORM, GROUPDRO, IMTL, MGDA, PAPER, UNIFORM
from excessmtl.paper.subjects import Subject

_MANY, _PROHIBITIVE = 100, 10


@claim(
    "3.3",
    "GradNorm takes the slow training of noisy tasks for lack of training and gives them high weights.",
    on="multimnist",
)
def gradnorm(subject: Subject) -> Finding:
    """GradNorm's clean weight at the highest noise level is below that of uniform weighting and at least 0.05 lower
    than without noise (90 % interval above 0 from three seeds on).
    """
    return every([GRADNORM], lambda shown: favours_noisy(subject, shown))


@claim("3.3", "The loss of a noisy task is flatter and its gradient smaller, which GradNorm and MGDA favour.")
def smaller_gradients(runs: Runs) -> Finding:
    """Not judged: it needs the norms of the tasks' gradients during training, which runs do not record."""
    return Finding(None, "runs do not record the norms of gradients")


@claim("3.3", "MGDA favours the noisy task, whose gradient is smaller.", on="multimnist")
def mgda(subject: Subject) -> Finding:
    """MGDA's clean weight at the highest noise level is below that of uniform weighting and at least 0.05 lower than
    without noise (90 % interval above 0 from three seeds on).
    """
    return every([MGDA], lambda shown: favours_noisy(subject, shown))


@claim(
    "3.3",
    "GroupDRO gives excessive weight to noisy tasks, neglects the others, and all of it gets worse.",
    on="multimnist",
)
def groupdro(subject: Subject) -> Finding:
    """GroupDRO's clean weight at the highest noise level is below that of uniform weighting and at least 0.05 lower
    than without noise, and its overall score there is more than 1 point below uniform weighting's (90 % intervals above
    0 from three seeds on).
    """

    def test(shown: str) -> Check:
        weight = favours_noisy(subject, shown)
        behind = advantage(subject, UNIFORM, shown, high_noise(subject, shown), OVERALL)
        return Check(weight.ok and behind.is_clear, f"{weight.text}; overall score behind uniform by {behind}")

    return every([GROUPDRO], test)


@claim(
    "3.3", "The gradient of a noisy task distorts IMTL's direction and damps or misguides training.", on="multimnist"
)
def imtl(subject: Subject) -> Finding:
    """IMTL's clean score at the highest noise level is clearly below that without noise (more than 1 point, 90 %
    interval above 0).
    """
    return every([IMTL], lambda shown: declines(subject, shown))


@claim("3.3", "MGDA compares all pairs of tasks, which is prohibitive for many tasks.")
def many_tasks(runs: Runs) -> Finding:
    """On data with at least 100 tasks a step of MGDA takes more than ten times as long as one of ExcessMTL (paper),
    which also needs every task's gradient.
    """
    many = runs.frame[runs.frame.scores.map(len) >= _MANY]

    def test(shown: str) -> Check:
        seconds = [many[many.shown == name].seconds_per_step.mean() for name in (shown, PAPER)]
        if not all(one > 0 for one in seconds):
            raise Lacking(f"runs of {shown} and {PAPER} with at least 100 tasks")
        factor = seconds[0] / seconds[1]
        return Check(factor > _PROHIBITIVE, f"{factor:.1f} times as long")

    return every([MGDA], test)
