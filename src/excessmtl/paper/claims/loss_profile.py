"""Section 4.3, Figure 4: the losses of both MultiMNIST tasks, without noise and with noise 0.8 in the second."""

import numpy as np

from excessmtl.paper.claims.judging import Check, Finding, both, every, excess
from excessmtl.paper.claims.measures import Lacking, advantage, mean, task_loss
from excessmtl.paper.claims.rules import declines, opposite
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.collected import epochs_of, has_epochs
from excessmtl.paper.methods import ADAPTIVE_RIVALS, GRADNORM, GROUPDRO, SINGLE_TASK, UNIFORM
from excessmtl.paper.subjects import Subject

NOISE = 0.8
_RELATIVE, _ABSOLUTE = 1.1, 0.02


def _tasks(subject: Subject) -> tuple[str, str]:
    """(clean, noisy)."""
    run = subject.runs.iloc[0]
    clean = [task for task in run.scores if task not in run.noisy_tasks]
    return clean[0], run.noisy_tasks[0]


def _as_good_as_alone(subject: Subject, shown: str, noise: float) -> Check:
    """On both tasks the test loss is at most 10 % and 0.02 nats above the single-task network's."""
    pairs = {
        task: [mean(subject, name, noise, task_loss(task)) for name in (shown, SINGLE_TASK)] for task in _tasks(subject)
    }
    text = ", ".join(f"{task} {own:.3f} (alone {alone:.3f})" for task, (own, alone) in pairs.items())
    close = all(own <= _RELATIVE * alone + _ABSOLUTE for own, alone in pairs.values())
    return Check(close, f"test losses at noise {noise:g}: {text}")


@claim("4.3, Fig. 4", "Noise raises the loss that the noisy task reaches when it is trained alone.", on="multimnist")
def single_task(subject: Subject) -> Finding:
    """The single-task network's test loss on the noisy task is more than 10 % higher at noise 0.8 than without, 90 %
    interval above 0.
    """
    return every([SINGLE_TASK], lambda shown: declines(subject, shown, NOISE, task_loss(_tasks(subject)[1])))


@claim("4.3, Fig. 4", "Without noise all methods reach the single-task losses.", on="multimnist")
def without_noise(subject: Subject) -> Finding:
    """For every rival and for ExcessMTL, the test loss of both tasks is at most 10 % plus 0.02 nats above the
    single-task network's.
    """
    rivals = every(ADAPTIVE_RIVALS, lambda shown: _as_good_as_alone(subject, shown, 0.0))
    return both(rivals, excess(lambda shown: _as_good_as_alone(subject, shown, 0.0)))


@claim(
    "4.3, Fig. 4", "At noise 0.8 only ExcessMTL stays close to the single-task losses of both tasks.", on="multimnist"
)
def only_excess(subject: Subject) -> Finding:
    """At noise 0.8 ExcessMTL's test losses are at most 10 % plus 0.02 nats above the single-task network's in both
    tasks, and no rival's are.
    """
    own = excess(lambda shown: _as_good_as_alone(subject, shown, NOISE))
    return both(own, every(ADAPTIVE_RIVALS, lambda shown: opposite(_as_good_as_alone(subject, shown, NOISE))))


@claim("4.3, Fig. 4", "Noise in task 2 makes all methods but ExcessMTL worse in task 1.", on="multimnist")
def first_task_suffers(subject: Subject) -> Finding:
    """The clean task's test loss is more than 10 % higher at noise 0.8 than without (90 % interval above 0) for every
    rival, and not for ExcessMTL.
    """
    loss = task_loss(_tasks(subject)[0])
    rivals = every(ADAPTIVE_RIVALS, lambda shown: declines(subject, shown, NOISE, loss))
    return both(rivals, excess(lambda shown: opposite(declines(subject, shown, NOISE, loss))))


@claim("4.3, Fig. 4", "Loss weighting strives for equal losses and so undertrains task 1.", on="multimnist")
def equal_losses(subject: Subject) -> Finding:
    """For GradNorm and GroupDRO at noise 0.8: the training losses of the two tasks in the last epoch are closer to each
    other (as a ratio) than under uniform weighting, and the clean task's test loss is more than 10 % above uniform
    weighting's, 90 % interval above 0.
    """
    clean, noisy = _tasks(subject)

    def ratio(shown: str) -> float:
        columns = [f"train/{task}/loss" for task in (noisy, clean)]
        runs = [run for _, run in subject.of(shown, NOISE).iterrows() if has_epochs(run)]
        ends = [table[columns].iloc[-1] for table in map(epochs_of, runs) if set(columns) <= set(table)]
        if not ends:
            raise Lacking(f"training losses of {shown} at noise {NOISE:g}")
        return float(np.mean([end.iloc[0] / end.iloc[1] for end in ends]))

    def test(shown: str) -> Check:
        own, even = ratio(shown), ratio(UNIFORM)
        behind = advantage(subject, UNIFORM, shown, NOISE, task_loss(clean))
        closer = abs(np.log(own)) < abs(np.log(even))
        text = (
            f"noisy over clean training loss {own:.1f} (uniform {even:.1f}), clean test loss above uniform's {behind}"
        )
        return Check(bool(closer) and behind.is_clear, text)

    return every((GRADNORM, GROUPDRO), test)
