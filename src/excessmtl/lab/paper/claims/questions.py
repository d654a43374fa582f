"""What claims ask about a method on one data set at a noise level, by the table of its runs.

`told`: the evidence, where it is not worded as for other claims.
"""

from collections.abc import Sequence
from itertools import pairwise

from excessmtl.lab.paper.claims.findings import Finding, Lacking, all_hold, opposite, question
from excessmtl.lab.paper.claims.method_runs import WEIGHT, MethodRuns, levels
from excessmtl.lab.paper.subjects import ADAPTIVE_RIVALS, SINGLE_TASK, UNIFORM

CLEAN = "clean_score"
_RELATIVE, _ABSOLUTE = 1.1, 0.02
_NOTHING = 0.01
_DRAMATIC = 5
"""Margins: 5 points of a share, 50 % of an error."""


@question
def favours_noisy(method: MethodRuns) -> Finding:
    """Noise takes weight from the clean tasks and leaves them with less than uniform weighting would."""
    shift, favours = method.at(0.0).better_than(method, "clean_weight"), favours_clean(method)
    less = method.mean("clean_weight") < _fair(method)
    return Finding(all_hold([shift.clear, less]), f"{favours.evidence}, moved to noisy tasks {shift}")


@question
def favours_clean(method: MethodRuns) -> Finding:
    """The clean tasks have at least 0.05 more weight than uniform weighting gives them."""
    weight, fair = method.mean("clean_weight"), _fair(method)
    return Finding(weight > fair + WEIGHT, f"clean weight {weight:.2f} at noise {method.noise:g} (uniform: {fair:.2f})")


@question
def has_no_clean_weight(method: MethodRuns) -> Finding:
    """The clean tasks have no weight."""
    weight = method.mean("clean_weight")
    return Finding(weight < _NOTHING, f"clean weight {weight:.3f}")


def _fair(method: MethodRuns) -> float:
    """The clean weight of uniform weighting."""
    return len(method.subject.setting.clean_tasks) / len(method.subject.setting.tasks)


@question
def declines(method: MethodRuns, measure: str = CLEAN, monotonically: bool = False) -> Finding:
    """The score is clearly worse than without noise.

    `monotonically`: and no step between noise levels is better by half the margin.
    """
    without = method.at(0.0)
    change = without.better_than(method, measure)
    course = f"{without.text(measure)} to {method.text(measure)} at noise {method.noise:g}"
    text = f"{_name(method, measure)} {course}, worse by {change}"
    if monotonically:
        harms = [without.better_than(method.at(level), measure) for level in levels(method.subject, method.shown)]
        if not all(later.mean > sooner.mean - later.tolerance / 2 for sooner, later in pairwise(harms)):
            return Finding(False, f"{text}, not monotonically")
    return Finding(change.clear, text)


@question
def stays_flat(method: MethodRuns) -> Finding:
    """At every noise level the clean score is proved not to be worse by a clear margin."""
    without, noisy = method.at(0.0), levels(method.subject, method.shown)[1:]
    changes = {level: without.better_than(method.at(level), CLEAN) for level in noisy}
    text = ", ".join(f"{change.mean:+.1f} at {level:g}" for level, change in changes.items())
    flat = all_hold(opposite(change.clear) for change in changes.values())
    return Finding(flat, f"clean score worse by ({changes[noisy[0]].unit}) {text}")


@question
def fails(method: MethodRuns) -> Finding:
    """The clean score is less than half of what it is without noise."""
    without = method.at(0.0)
    text = f"{without.text(CLEAN)} without noise, {method.text(CLEAN)} at noise {method.noise:g}"
    return Finding(method.mean(CLEAN) < 0.5 * without.mean(CLEAN), text)


@question
def fails_dramatically(method: MethodRuns, tasks: Sequence[str]) -> Finding:
    """One of the tasks is worse than without noise by five clear margins."""
    changes = {task: method.at(0.0).better_than(method, task) for task in tasks}
    failed = any(change.mean >= _DRAMATIC * change.tolerance for change in changes.values())
    return Finding(failed, ", ".join(f"{task} worse by {change}" for task, change in changes.items()))


@question
def least_affected(method: MethodRuns) -> Finding:
    """Noise costs less on the clean tasks than with any other method."""
    every = [method.of(name) for name in (method.shown, *ADAPTIVE_RIVALS, UNIFORM)]
    harms = {own.shown: own.at(0.0).better_than(own, CLEAN) for own in every}
    own = harms.pop(method.shown)
    least = min(harms, key=lambda name: harms[name].mean)
    text = f"worse by {own} at noise {method.noise:g}; {least}, next, {harms[least].mean:+.1f}"
    return Finding(own.mean < harms[least].mean, text)


@question
def ahead(
    method: MethodRuns,
    rivals: Sequence[str] = ADAPTIVE_RIVALS,
    measure: str = CLEAN,
    clearly: bool = False,
    told: str = "{name} {score} at noise {noise:g}, ahead of {rival} by {lead}",
) -> Finding:
    """It is ahead of every rival, 90 % interval above 0; `clearly`: by the margin. Told is the smallest lead."""
    leads = {rival: method.better_than(method.of(rival), measure) for rival in rivals}
    rival = min(leads, key=lambda name: leads[name].mean)
    score, name = method.text(measure), _name(method, measure)
    text = told.format(name=name, score=score, noise=method.noise, rival=rival, lead=leads[rival])
    return Finding(all_hold(lead.clear if clearly else lead.ahead for lead in leads.values()), text)


@question
def behind(
    method: MethodRuns,
    rivals: Sequence[str] = ADAPTIVE_RIVALS,
    measure: str = CLEAN,
    told: str = "behind {rival} by {lag}",
) -> Finding:
    """The score is clearly worse than that of the best rival."""
    lags = {rival: method.of(rival).better_than(method, measure) for rival in rivals}
    rival = max(lags, key=lambda name: lags[name].mean)
    return Finding(lags[rival].clear, told.format(rival=rival, lag=lags[rival], noise=method.noise))


def _name(method: MethodRuns, measure: str) -> str:
    """What evidence calls the measure."""
    return method.measure(measure).title.partition(":")[0]


@question
def as_good_as_alone(method: MethodRuns) -> Finding:
    """On both tasks the test loss is at most 10 % and 0.02 nats above the single-task network's."""
    tasks = {"clean_loss": method.subject.setting.clean_tasks[0], "noisy_loss": method.subject.setting.noisy_tasks[0]}
    losses = {task: (method.mean(loss), method.of(SINGLE_TASK).mean(loss)) for loss, task in tasks.items()}
    text = ", ".join(f"{task} {own:.3f} (alone {alone:.3f})" for task, (own, alone) in losses.items())
    close = all(own <= _RELATIVE * alone + _ABSOLUTE for own, alone in losses.values())
    return Finding(close, f"test losses at noise {method.noise:g}: {text}")


@question
def takes_longer(method: MethodRuns, than: str, times: float) -> Finding:
    """A step takes more than so many times as long as with another method."""
    own, other = (runs.mean("seconds_per_step") for runs in (method, method.of(than)))
    if not other > 0:
        raise Lacking(f"the time of a step of {than}")
    return Finding(own > times * other, f"{own / other:.1f} times as long")
