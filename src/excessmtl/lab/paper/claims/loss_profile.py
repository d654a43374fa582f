"""Section 4.3, Figure 4: the losses of both MultiMNIST tasks, without noise and with noise 0.8 in the second."""

from functools import partial

import numpy as np

from excessmtl.lab.compare.courses import read_epochs
from excessmtl.lab.compare.measures import Measure, task_loss
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.paper.claims.answers import all_hold
from excessmtl.lab.paper.claims.judging import Claim, Finding, both, every, excess, no
from excessmtl.lab.paper.claims.measures import Lacking, advantage, check_seeds, mean
from excessmtl.lab.paper.claims.rules import declines
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, GRADNORM, GROUPDRO, SINGLE_TASK, UNIFORM
from excessmtl.lab.paper.subjects import Subject

NOISE = 0.8
_RELATIVE, _ABSOLUTE = 1.1, 0.02


def _clean_loss(setting: Setting) -> Measure:
    return task_loss(setting.clean_tasks[0])


def _noisy_loss(setting: Setting) -> Measure:
    return task_loss(setting.noisy_tasks[0])


def _as_good_as_alone(subject: Subject, shown: str, noise: float) -> Finding:
    """On both tasks the test loss is at most 10 % and 0.02 nats above the single-task network's."""
    tasks = (subject.setting.clean_tasks[0], subject.setting.noisy_tasks[0])
    pairs = {
        task: [mean(subject, name, noise, pick) for name in (shown, SINGLE_TASK)]
        for task, pick in zip(tasks, (_clean_loss, _noisy_loss), strict=True)
    }
    text = ", ".join(f"{task} {own:.3f} (alone {alone:.3f})" for task, (own, alone) in pairs.items())
    close = all(own <= _RELATIVE * alone + _ABSOLUTE for own, alone in pairs.values())
    return Finding(close, f"test losses at noise {noise:g}: {text}")


def _training_ratio(subject: Subject, shown: str) -> float:
    """The noisy task's training loss over the clean task's, in the last epoch."""
    columns = [f"train/{tasks[0]}/loss" for tasks in (subject.setting.noisy_tasks, subject.setting.clean_tasks)]
    paths = subject.of(shown, NOISE).metrics_path.dropna()
    ends = [table[columns].iloc[-1] for table in map(read_epochs, paths) if set(columns) <= set(table)]
    if not ends:
        raise Lacking(f"training losses of {shown} at noise {NOISE:g}")
    check_seeds(len(ends), shown, NOISE)
    return float(np.mean([end.iloc[0] / end.iloc[1] for end in ends]))


def _strives_for_equal_losses(subject: Subject, shown: str) -> Finding:
    own, even = _training_ratio(subject, shown), _training_ratio(subject, UNIFORM)
    behind = advantage(subject, UNIFORM, shown, NOISE, _clean_loss)
    closer = abs(np.log(own)) < abs(np.log(even))
    text = f"noisy over clean training loss {own:.1f} (uniform {even:.1f}), clean test loss above uniform's {behind}"
    return Finding(all_hold([bool(closer), behind.clear]), text)


_alone_without, _alone_with = (partial(_as_good_as_alone, noise=noise) for noise in (0.0, NOISE))
_clean_task_suffers = partial(declines, noise=NOISE, pick=_clean_loss)
_claim = partial(Claim, "4.3, Fig. 4", "multimnist")
CLAIMS = (
    _claim(
        "Noise raises the loss that the noisy task reaches when it is trained alone.",
        "The single-task network's test loss on the noisy task is more than 10 % higher at noise 0.8 than without, "
        "90 % interval above 0.",
        every([SINGLE_TASK], partial(declines, noise=NOISE, pick=_noisy_loss)),
    ),
    _claim(
        "Without noise all methods reach the single-task losses.",
        "For every rival and for ExcessMTL, the test loss of both tasks is at most 10 % plus 0.02 nats above the "
        "single-task network's.",
        both(every(ADAPTIVE_RIVALS, _alone_without), excess(_alone_without)),
    ),
    _claim(
        "At noise 0.8 only ExcessMTL stays close to the single-task losses of both tasks.",
        "At noise 0.8 ExcessMTL's test losses are at most 10 % plus 0.02 nats above the single-task network's in both "
        "tasks, and no rival's are.",
        both(excess(_alone_with), every(ADAPTIVE_RIVALS, no(_alone_with))),
    ),
    _claim(
        "Noise in task 2 makes all methods but ExcessMTL worse in task 1.",
        "The clean task's test loss is more than 10 % higher at noise 0.8 than without (90 % interval above 0) for "
        "every rival, and not for ExcessMTL.",
        both(every(ADAPTIVE_RIVALS, _clean_task_suffers), excess(no(_clean_task_suffers))),
    ),
    _claim(
        "Loss weighting strives for equal losses and so undertrains task 1.",
        "For GradNorm and GroupDRO at noise 0.8: the training losses of the two tasks in the last epoch are closer to "
        "each other (as a ratio) than under uniform weighting, and the clean task's test loss is more than 10 % above "
        "uniform weighting's, 90 % interval above 0.",
        every((GRADNORM, GROUPDRO), _strives_for_equal_losses),
    ),
)
