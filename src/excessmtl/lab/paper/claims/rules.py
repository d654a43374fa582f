"""Questions that several claims ask about a method on one data set."""

from collections.abc import Sequence
from itertools import pairwise

from excessmtl.lab.compare.measures import Measure, task_loss
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.paper.claims.judging import Ask, Finding, all_hold, opposite
from excessmtl.lab.paper.claims.measures import (
    CLEAN,
    WEIGHT,
    Pick,
    advantage,
    clean_weight,
    harm,
    high_noise,
    levels,
    mean,
    spread,
    weight_shift,
)
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS
from excessmtl.lab.paper.subjects import Subject

HIGH = 0.8
"""The noise level of Figures 3 and 4."""


def clean_loss(setting: Setting) -> Measure:
    """The loss of the clean task where there is one."""
    return task_loss(setting.clean_tasks[0])


def noisy_loss(setting: Setting) -> Measure:
    """The loss of the noisy task where there is one."""
    return task_loss(setting.noisy_tasks[0])


def favours_noisy(subject: Subject, shown: str) -> Finding:
    """Noise takes weight from the clean tasks and leaves them with less than uniform weighting would."""
    noise = high_noise(subject, shown)
    shift, weight = weight_shift(subject, shown, noise), clean_weight(subject, shown, noise).mean()
    fair = _fair(subject)
    text = f"clean weight {weight:.2f} at noise {noise:g} (uniform: {fair:.2f}), moved to noisy tasks {shift}"
    return Finding(all_hold([shift.clear, bool(weight < fair)]), text)


def favours_clean(subject: Subject, shown: str) -> Finding:
    """At the highest noise level the clean tasks have at least 0.05 more weight than uniform weighting gives them."""
    noise = high_noise(subject, shown)
    weight, fair = clean_weight(subject, shown, noise).mean(), _fair(subject)
    return Finding(bool(weight > fair + WEIGHT), f"clean weight {weight:.2f} at noise {noise:g} (uniform: {fair:.2f})")


def declines(subject: Subject, shown: str, noise: float | None = None, pick: Pick = CLEAN) -> Finding:
    """The score is clearly worse at a noise level (the highest) than without noise."""
    level = high_noise(subject, shown) if noise is None else noise
    change = harm(subject, shown, level, pick)
    course = f"{spread(subject, shown, 0.0, pick)} to {spread(subject, shown, level, pick)}"
    return Finding(change.clear, f"{_name(subject, pick)} {course} at noise {level:g}, worse by {change}")


def declines_monotonically(subject: Subject, shown: str, pick: Pick = CLEAN) -> Finding:
    """Clearly worse at the end, and no step between noise levels that is better by half the margin."""
    end = declines(subject, shown, pick=pick)
    declined = end.holds or False
    harms = [harm(subject, shown, level, pick) for level in levels(subject, shown)]
    falling = all(later.mean > sooner.mean - later.margin / 2 for sooner, later in pairwise(harms))
    return Finding(all_hold([declined, falling]), end.evidence if falling else f"{end.evidence}, not monotonically")


def stays_flat(subject: Subject, shown: str) -> Finding:
    """At every noise level the clean score is proved not to be worse by a clear margin."""
    found = {level: harm(subject, shown, level) for level in sorted(subject.of(shown).noise.unique()) if level > 0}
    high_noise(subject, shown)  # or the runs tell too little
    text = ", ".join(f"{change.mean:+.1f} at {level:g}" for level, change in found.items())
    unit = next(iter(found.values())).unit
    return Finding(
        all_hold(opposite(change.clear) for change in found.values()), f"clean score worse by ({unit}) {text}"
    )


def beats_all(
    subject: Subject,
    shown: str,
    rivals: Sequence[str] = ADAPTIVE_RIVALS,
    noise: float | None = None,
    pick: Pick = CLEAN,
    clearly: bool = False,
) -> Finding:
    """At a noise level (the highest) it is ahead of every rival, 90 % interval above 0; `clearly`: by the margin."""
    level = high_noise(subject, shown) if noise is None else noise
    ahead = {rival: advantage(subject, shown, rival, level, pick) for rival in rivals}
    closest = min(ahead, key=lambda rival: ahead[rival].mean)
    text = f"{_name(subject, pick)} {spread(subject, shown, level, pick)} at noise {level:g}, ahead of {closest} by "
    passed = all_hold(difference.clear if clearly else difference.ahead for difference in ahead.values())
    return Finding(passed, f"{text}{ahead[closest]}")


def not_behind_the_best(subject: Subject, shown: str, noise: float, pick: Pick = CLEAN) -> Finding:
    """The score is proved not to be clearly worse than that of the best rival."""
    sign = 1 if pick(subject.setting).better == "higher" else -1
    best = max(ADAPTIVE_RIVALS, key=lambda rival: sign * mean(subject, rival, noise, pick))
    behind = advantage(subject, best, shown, noise, pick)
    return Finding(opposite(behind.clear), f"behind {best} by {behind}")


def at_every_level(ask: Ask) -> Ask:
    """Passes where it does at each noise level that the method was run at."""

    def asked(subject: Subject, shown: str) -> Finding:
        found = [ask(subject, shown, noise=level) for level in levels(subject, shown)]
        return Finding(all_hold(one.holds or False for one in found), "; ".join(one.evidence for one in found))

    return asked


def _fair(subject: Subject) -> float:
    """The clean weight of uniform weighting."""
    return len(subject.setting.clean_tasks) / len(subject.setting.tasks)


def _name(subject: Subject, pick: Pick) -> str:
    """What evidence calls the measure."""
    return pick(subject.setting).title.partition(":")[0]
