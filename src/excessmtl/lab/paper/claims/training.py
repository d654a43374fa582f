"""Questions about what happens during training: they read the steps and epochs that run folders keep."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from excessmtl.lab.compare.courses import read_epochs, read_steps
from excessmtl.lab.paper.claims.judging import Finding, Judge, Lacking, all_hold, excess
from excessmtl.lab.paper.claims.measures import WEIGHT, advantage, check_seeds, clean_loss
from excessmtl.lab.paper.claims.questions import HIGH
from excessmtl.lab.paper.figures.training import RISK_NOISE, agreement, course
from excessmtl.lab.paper.methods import UNIFORM
from excessmtl.lab.paper.subjects import Subject

_EARLY, _MATCH = 0.1, 0.9
_SUBSTANTIAL, _NEARLY = 0.6, 0.1


def _courses(subject: Subject, shown: str, noise: float) -> list[pd.Series]:
    """The runs that have kept their steps, of as many seeds as a verdict needs."""
    runs = [run for _, run in subject.of(shown, noise).dropna(subset="steps_path").iterrows()]
    if not runs:
        raise Lacking(f"run folders of {shown} at noise {noise:g}")
    check_seeds(len(runs), shown, noise)
    return runs


def on_courses(ask: Callable[[pd.DataFrame], Finding]) -> Judge:
    """Ask about the seeds' mean course of the excess risks."""

    def asked(subject: Subject, shown: str) -> Finding:
        # Runs of different lengths are not mixed: a subject has one number of epochs.
        courses = pd.concat([course(run) for run in _courses(subject, shown, RISK_NOISE)])
        return ask(courses.groupby(["task", "noisy", "epoch"], as_index=False).mean())

    return excess(asked)


def lower_at_first(table: pd.DataFrame) -> Finding:
    """At first the noisy task has the lower excess risk, the true and the estimated one."""
    early = table[table.epoch <= _EARLY * table.epoch.max()]
    means = early.groupby("noisy")[["true", "estimated"]].mean()
    clean, noisy = means.loc[False], means.loc[True]
    text = (
        f"true {noisy.true:.2f} (noisy) and {clean.true:.2f} (clean), "
        f"estimated {noisy.estimated:.3g} and {clean.estimated:.3g}"
    )
    return Finding(bool((noisy < clean).all()), text)


def approach_zero(table: pd.DataFrame) -> Finding:
    """At the end the estimates are a tenth of their largest value, or less."""
    late = table[table.epoch > (1 - _EARLY) * table.epoch.max()]
    rest = late.groupby("task").estimated.mean() / table.groupby("task").estimated.max()
    text = ", ".join(f"{task} at {100 * share:.0f} % of its largest" for task, share in rest.items())
    return Finding(bool((rest < _EARLY).all()), text)


def matches(table: pd.DataFrame) -> Finding:
    """The estimate is the true excess risk times a factor, nearly the same for all tasks."""
    rows = agreement(table)
    slopes = [row["slope"] for row in rows]
    ratio = max(slopes) / min(slopes) if min(slopes) > 0 else float("inf")
    text = ", ".join(f"{row['task']} correlation {row['correlation']:.2f}, factor {row['slope']:.3g}" for row in rows)
    return Finding(all(row["correlation"] > _MATCH for row in rows) and ratio < 2, text)


def _noisy_weight(subject: Subject, shown: str) -> Callable[[float, float], float]:
    """The noisy tasks' mean weight between two shares of training, over all seeds."""
    shares = []
    for run in _courses(subject, shown, HIGH):
        weights = read_steps(run.steps_path).weights
        shares.append(weights[list(run.noisy_tasks)].sum(axis=1) / weights.sum(axis=1))
    curve = pd.concat(shares, axis=1).mean(axis=1)
    return lambda start, end: float(curve.iloc[int(start * len(curve)) : max(int(end * len(curve)), 1)].mean())


def rapidly_substantial(subject: Subject, shown: str) -> Finding:
    """The noisy tasks have much weight soon."""
    weight = _noisy_weight(subject, shown)(0, 0.25)
    return Finding(weight > _SUBSTANTIAL, f"noisy weight {weight:.2f} over the first quarter")


def first_noisy_then_uniform(subject: Subject, shown: str) -> Finding:
    """The noisy tasks have much weight at first, and half of it at the end."""
    weight = _noisy_weight(subject, shown)
    first, last = weight(0, 0.1), weight(0.9, 1)
    holds = first > _SUBSTANTIAL and abs(last - 0.5) < _NEARLY
    return Finding(holds, f"noisy weight {first:.2f} over the first tenth, {last:.2f} over the last")


def clean_from_the_start(subject: Subject, shown: str) -> Finding:
    """The clean tasks have more than half of the weight, at first and at the end."""
    weight = _noisy_weight(subject, shown)
    first, last = 1 - weight(0, 0.1), 1 - weight(0.9, 1)
    text = f"clean weight {first:.2f} over the first tenth, {last:.2f} over the last"
    return Finding(min(first, last) > 0.5 + WEIGHT, text)


def _training_ratio(subject: Subject, shown: str) -> float:
    """The noisy task's training loss over the clean task's, in the last epoch."""
    columns = [f"train/{tasks[0]}/loss" for tasks in (subject.setting.noisy_tasks, subject.setting.clean_tasks)]
    paths = subject.of(shown, HIGH).metrics_path.dropna()
    ends = [table[columns].iloc[-1] for table in map(read_epochs, paths) if set(columns) <= set(table)]
    if not ends:
        raise Lacking(f"training losses of {shown} at noise {HIGH:g}")
    check_seeds(len(ends), shown, HIGH)
    return float(np.mean([end.iloc[0] / end.iloc[1] for end in ends]))


def strives_for_equal_losses(subject: Subject, shown: str) -> Finding:
    """The training losses are closer than under uniform weighting, and the clean task pays for it."""
    own, even = _training_ratio(subject, shown), _training_ratio(subject, UNIFORM)
    behind = advantage(subject, UNIFORM, shown, HIGH, clean_loss)
    closer = abs(np.log(own)) < abs(np.log(even))
    text = f"noisy over clean training loss {own:.1f} (uniform {even:.1f}), clean test loss above uniform's {behind}"
    return Finding(all_hold([bool(closer), behind.clear]), text)
