"""What claims ask about the course of training: these questions read the steps and epochs that run folders keep."""

import numpy as np
import pandas as pd

from excessmtl.lab.compare.collect import read_epochs, read_steps
from excessmtl.lab.paper.claims.findings import Finding, Lacking, question
from excessmtl.lab.paper.claims.method_runs import WEIGHT, MethodRuns
from excessmtl.lab.paper.figures.training import agreement, course
from excessmtl.lab.paper.subjects import UNIFORM

_EARLY, _MATCH = 0.1, 0.9
_SUBSTANTIAL, _NEARLY = 0.6, 0.1


def _with(method: MethodRuns, file: str) -> list[pd.Series]:
    """The runs that have kept this file, of as many seeds as a verdict needs."""
    runs = [run for _, run in method.subject.of(method.shown, method.noise).dropna(subset=file).iterrows()]
    if not runs:
        raise Lacking(f"run folders of {method.shown} at noise {method.noise:g}")
    method.check_seeds(len(runs))
    return runs


def _excess_risks(method: MethodRuns) -> pd.DataFrame:
    """The seeds' mean course of the excess risks."""
    # Runs of different lengths are not mixed: a subject has one number of epochs.
    courses = pd.concat([course(run) for run in _with(method, "steps_path")])
    return courses.groupby(["task", "noisy", "epoch"], as_index=False).mean()


@question
def noisy_risk_is_lower_at_first(method: MethodRuns) -> Finding:
    """At first the noisy task has the lower excess risk, the true and the estimated one."""
    table = _excess_risks(method)
    early = table[table.epoch <= _EARLY * table.epoch.max()]
    means = early.groupby("noisy")[["true", "estimated"]].mean()
    clean, noisy = means.loc[False], means.loc[True]
    text = (
        f"true {noisy.true:.2f} (noisy) and {clean.true:.2f} (clean), "
        f"estimated {noisy.estimated:.3g} and {clean.estimated:.3g}"
    )
    return Finding(bool((noisy < clean).all()), text)


@question
def risks_approach_zero(method: MethodRuns) -> Finding:
    """At the end the estimates are a tenth of their largest value, or less."""
    table = _excess_risks(method)
    late = table[table.epoch > (1 - _EARLY) * table.epoch.max()]
    rest = late.groupby("task").estimated.mean() / table.groupby("task").estimated.max()
    text = ", ".join(f"{task} at {100 * share:.0f} % of its largest" for task, share in rest.items())
    return Finding(bool((rest < _EARLY).all()), text)


@question
def estimate_matches(method: MethodRuns) -> Finding:
    """The estimate is the true excess risk times a factor, nearly the same for all tasks."""
    rows = agreement(_excess_risks(method))
    slopes = [row["slope"] for row in rows]
    ratio = max(slopes) / min(slopes) if min(slopes) > 0 else float("inf")
    text = ", ".join(f"{row['task']} correlation {row['correlation']:.2f}, factor {row['slope']:.3g}" for row in rows)
    return Finding(all(row["correlation"] > _MATCH for row in rows) and ratio < 2, text)


def _noisy_weights(method: MethodRuns, *stretches: tuple[float, float]) -> list[float]:
    """The noisy tasks' mean weight over stretches of training, each between two shares of it, over all seeds."""
    shares = []
    for run in _with(method, "steps_path"):
        weights = read_steps(run.steps_path).weights
        shares.append(weights[list(run.noisy_tasks)].sum(axis=1) / weights.sum(axis=1))
    curve = pd.concat(shares, axis=1).mean(axis=1)
    return [float(curve.iloc[int(start * len(curve)) : int(end * len(curve))].mean()) for start, end in stretches]


@question
def rapidly_favours_noisy(method: MethodRuns) -> Finding:
    """The noisy tasks have much weight soon."""
    (weight,) = _noisy_weights(method, (0, 0.25))
    return Finding(weight > _SUBSTANTIAL, f"noisy weight {weight:.2f} over the first quarter")


@question
def first_noisy_then_uniform(method: MethodRuns) -> Finding:
    """The noisy tasks have much weight at first, and half of it at the end."""
    start, end = _noisy_weights(method, (0, 0.1), (0.9, 1))
    holds = start > _SUBSTANTIAL and abs(end - 0.5) < _NEARLY
    return Finding(holds, f"noisy weight {start:.2f} over the first tenth, {end:.2f} over the last")


@question
def favours_clean_throughout(method: MethodRuns) -> Finding:
    """The clean tasks have more than half of the weight, at first and at the end."""
    start, end = (1 - weight for weight in _noisy_weights(method, (0, 0.1), (0.9, 1)))
    text = f"clean weight {start:.2f} over the first tenth, {end:.2f} over the last"
    return Finding(min(start, end) > 0.5 + WEIGHT, text)


@question
def strives_for_equal_losses(method: MethodRuns) -> Finding:
    """The training losses of the last epoch are closer to each other than under uniform weighting."""
    setting, ratios = method.subject.setting, []
    noisy, clean = (f"train/{tasks[0]}/loss" for tasks in (setting.noisy_tasks, setting.clean_tasks))
    for own in (method, method.of(UNIFORM)):
        ends = [read_epochs(run.metrics_path).iloc[-1] for run in _with(own, "metrics_path")]
        if not all({noisy, clean} <= set(end.index) for end in ends):
            raise Lacking(f"training losses of {own.shown} at noise {own.noise:g}")
        ratios.append(float(np.mean([end[noisy] / end[clean] for end in ends])))
    text = f"noisy over clean training loss {ratios[0]:.1f} (uniform {ratios[1]:.1f})"
    return Finding(bool(abs(np.log(ratios[0])) < abs(np.log(ratios[1]))), text)
