"""`diagnose`: from held-out predictions to a report."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from excessmtl.diagnosis import classes, residuals
from excessmtl.diagnosis.inputs import HeldOut, held_out
from excessmtl.diagnosis.report import Report, TaskReport
from excessmtl.diagnosis.second_labels import LEAST as LEAST_PAIRS
from excessmtl.diagnosis.second_labels import Pairs, pairs_of
from excessmtl.diagnosis.second_labels import noise_level as second_labels_level
from excessmtl.diagnosis.skill import LEARNED, Skill, skill_of
from excessmtl.diagnosis.verdicts import SUSPECT, Evidence, Verdict, advice_for, verdict_of


def diagnose(
    predictions: Mapping[str, Any],
    targets: Mapping[str, Any],
    kinds: Any = None,
    *,
    second_labels: Mapping[str, Any] | None = None,
    ignore: int = -100,
) -> Report:
    """Which tasks have bad labels, and how bad: from predictions for samples that the network was not trained on.

    Args:
        predictions: Task -> tensor or array: [n, classes] logits or probabilities for "classification", [n] logits or
            probabilities for "binary", [n] or [n, k] values for "regression". The number of samples may differ from
            task to task. Or a tuple of these, from several models: the one with the most skill is judged, and noise
            that another one does without is in doubt.
        targets: Task -> labels in the same order, **as noisy as the training labels**: hold out a part of the training
            data. Against cleaner labels the noise looks smaller than it is. NaN, -1 and `ignore` mark missing ones.
        kinds: Task -> "classification", "binary" or "regression", or one of them for all. Those left out are inferred:
            several outputs for one label are classes, labels 0 and 1 (or -1 and +1) are binary, the rest is
            regression.
        second_labels: Task -> other labels of the same samples, by another rater or at another time, NaN or -1 where
            there is none. A task that has at least 30 of them is judged by how the two labels differ: this tells hard
            from noisy for certain.
        ignore: A class number that stands for a missing label.

    Returns:
        A report with an entry per task. `print(report)` shows a table.
    """
    models = _models(predictions)
    found = held_out(models[0], targets, kinds, ignore)
    candidates = {task.task: [task] for task in found}
    for others in models[1:]:
        known = {task.task: task.kind for task in found if task.task in others}
        for task in held_out(others, {name: targets.get(name) for name in others}, known, ignore):
            candidates[task.task].append(task)
    for own in (own for own in candidates.values() if len(own) > 1):
        own.sort(key=_skill, reverse=True)
    found = [candidates[task.task][0] for task in found]
    skills = {task.task: skill_of(task) for task in found}
    learned = [name for name, skill in skills.items() if skill is not None and skill.share >= LEARNED]
    twice = _pairs(models[0], {} if second_labels is None else second_labels, found, ignore)
    tasks = [
        _of_task(candidates[name], skill, twice.get(name), any(other != name for other in learned))
        for name, skill in skills.items()
    ]
    return Report(tasks, {task.task: task for task in found})


def _models(predictions: Any) -> list[dict[str, Any]]:
    """The predictions of the first model for every task, of the second one where there is one, and so on."""
    if not isinstance(predictions, Mapping):
        return [predictions]  # refused with the other inputs
    several = {
        task: value if isinstance(value, tuple) and value and np.ndim(value[0]) else (value,)
        for task, value in predictions.items()
    }
    most = max((len(values) for values in several.values()), default=1)
    return [{task: values[i] for task, values in several.items() if i < len(values)} for i in range(most)]


def _skill(task: HeldOut) -> float:
    skill = skill_of(task)
    return -np.inf if skill is None else skill.share


def _fit(task: HeldOut) -> residuals.Fit | classes.Fit:
    return residuals.Fit(task) if task.kind == "regression" else classes.Fit(task)


def _sees_noise(task: HeldOut) -> bool:
    """Whether a second model sees noise too, or has learned too little to be asked."""
    if skill_of(task) is None:
        return True
    fit = _fit(task)
    level = fit.level()
    return level.least >= SUSPECT or fit.learned(level.rate) < fit.enough(level.least)


def _pairs(predictions: Mapping[str, Any], labels: Any, found: list[HeldOut], ignore: int) -> dict[str, Pairs]:
    """Task -> both labels of its samples, where enough have two."""
    if isinstance(labels, Mapping) and not labels:  # the predictions are not read, and spoken of, again
        return {}
    again = held_out(predictions, labels, {task.task: task.kind for task in found}, ignore, "second_labels")
    both = {task.task: pairs_of(task, other) for task, other in zip(found, again, strict=True)}
    return {task: pairs for task, pairs in both.items() if pairs.samples >= LEAST_PAIRS}


def _of_task(models: list[HeldOut], skill: Skill | None, pairs: Pairs | None, others_learned: bool) -> TaskReport:
    task = models[0]
    if skill is None or task.broken >= task.samples:
        return _without_estimate(task)
    numbers = task.kind == "regression"
    fit = _fit(task)
    level = fit.level() if pairs is None else second_labels_level(pairs)
    if pairs is None and skill.is_nothing and not numbers:  # random labels, as far as can be seen
        level = replace(level, rate=1 - max(skill.information, 0.0), high=1.0, high_from_0=1.0)
    loss = _loss(task)
    seen = Evidence(
        task.samples,
        level,
        skill,
        fit.learned(level.rate),
        enough=fit.enough(level.least),
        graded=fit.graded,
        rated=fit.rated,
        possible=fit.floor(level.least) <= loss,
        agreed=all(_sees_noise(other) for other in models[1:]),
        others_learned=others_learned,
        pairs=pairs.samples if pairs else 0,
    )
    verdict, reason = verdict_of(seen)
    # Labels may be random, or the inputs too poor; or too many rates fit.
    unknown = skill.is_nothing or (verdict == "suspect" and (level.is_wide or not seen.rated))
    known = verdict not in ("not learned yet", "too little evidence") and not (unknown and pairs is None)
    low, high = seen.interval
    wrong = level.rate if numbers else level.rate * (1 - 1 / task.predictions.shape[1])
    floor, floor_low, floor_high = (min(fit.floor(rate), loss) for rate in (level.rate, low, high))
    return TaskReport(
        task.task,
        verdict,
        reason,
        advice_for(verdict, task.kind, task.samples, wrong, seen.pairs),
        noise_rate=level.rate if known else None,
        noise_rate_interval=(low, high),
        wrong_labels=wrong if known else None,
        class_rates=fit.class_rates(level.rate) if known else None,
        floor=floor if known else None,
        floor_interval=(floor_low, floor_high),
        loss=loss,
        excess_risk=loss - floor if known else None,
        skill=skill.share,
        samples=task.samples,
    )


def _without_estimate(task: HeldOut) -> TaskReport:
    """Where nothing can be estimated: the reason."""
    verdict: Verdict = "too little evidence"
    if task.broken and task.broken >= task.samples:
        verdict, reason = (
            "not learned yet",
            f"{task.broken} of its predictions are not finite: training has diverged, or they are missing",
        )
    elif not task.samples:
        reason = "there is no held-out label"
    elif task.samples < 2:
        reason = "there is one held-out label"
    elif task.kind == "regression":
        reason = f"all {task.samples} held-out labels are {task.targets.flat[0]:g}"
    else:
        reason = f"all {task.samples} held-out labels are of class {task.targets[0]:g}"
    return TaskReport(
        task.task, verdict, reason, advice_for(verdict, task.kind, task.samples, None), samples=task.samples
    )


def _loss(task: HeldOut) -> float:
    """Mean cross-entropy, or mean squared error."""
    if task.kind == "regression":
        return float(np.square(task.targets - task.predictions).mean())
    rows = np.arange(task.samples)
    return float(np.minimum(-task.predictions[rows, task.targets.astype(np.int64)], 100).mean() + 0.0)
