"""Questions that several claims ask about a method on one data set."""

import itertools
from collections.abc import Sequence

from excessmtl.paper.claims.judging import Check
from excessmtl.paper.claims.measures import (
    CLEAN,
    WEIGHT,
    Pick,
    advantage,
    clean_share_of_tasks,
    clean_weight,
    harm,
    high_noise,
    higher_is_better,
    levels,
    mean,
    name_of,
    spread,
    weight_shift,
)
from excessmtl.paper.subjects import Subject


def favours_noisy(subject: Subject, shown: str) -> Check:
    """Noise takes weight from the clean tasks and leaves them with less than uniform weighting would."""
    noise = high_noise(subject, shown)
    shift, weight = weight_shift(subject, shown, noise), clean_weight(subject, shown, noise).mean()
    fair = clean_share_of_tasks(subject)
    text = f"clean weight {weight:.2f} at noise {noise:g} (uniform: {fair:.2f}), moved to noisy tasks {shift}"
    return Check(shift.is_clear and weight < fair, text)


def favours_clean(subject: Subject, shown: str) -> Check:
    """At the highest noise level the clean tasks have at least 0.05 more weight than uniform weighting gives them."""
    noise = high_noise(subject, shown)
    weight, fair = clean_weight(subject, shown, noise).mean(), clean_share_of_tasks(subject)
    return Check(weight > fair + WEIGHT, f"clean weight {weight:.2f} at noise {noise:g} (uniform: {fair:.2f})")


def opposite(check: Check) -> Check:
    """The same numbers, the other answer."""
    return Check(not check.ok, check.text)


def declines(subject: Subject, shown: str, noise: float | None = None, pick: Pick = CLEAN) -> Check:
    """The score is clearly worse at a noise level (the highest) than without noise."""
    level = high_noise(subject, shown) if noise is None else noise
    change = harm(subject, shown, level, pick)
    course = f"{spread(subject, shown, 0.0, pick)} to {spread(subject, shown, level, pick)}"
    return Check(change.is_clear, f"{name_of(subject, pick)} {course} at noise {level:g}, worse by {change}")


def declines_monotonically(subject: Subject, shown: str, pick: Pick = CLEAN) -> Check:
    """Clearly worse at the end, and no step between noise levels that is better by half the margin."""
    end = declines(subject, shown, pick=pick)
    harms = [harm(subject, shown, level, pick) for level in levels(subject, shown)]
    falling = all(later.mean > sooner.mean - later.margin / 2 for sooner, later in itertools.pairwise(harms))
    return Check(end.ok and falling, end.text if falling else f"{end.text}, not monotonically")


def stays_flat(subject: Subject, shown: str) -> Check:
    """At no noise level is the clean score worse by a clear margin."""
    found = {level: harm(subject, shown, level) for level in levels(subject, shown) if level > 0}
    high_noise(subject, shown)
    text = ", ".join(f"{change.mean:+.1f} at {level:g}" for level, change in found.items())
    unit = next(iter(found.values())).unit
    return Check(not any(change.is_clear for change in found.values()), f"clean score worse by ({unit}) {text}")


def beats_all(
    subject: Subject, shown: str, rivals: Sequence[str], noise: float, pick: Pick = CLEAN, clearly: bool = False
) -> Check:
    """The mean is above every rival's; `clearly`: by the margin, with the interval above 0."""
    ahead = {rival: advantage(subject, shown, rival, noise, pick) for rival in rivals}
    closest = min(ahead, key=lambda rival: ahead[rival].mean)
    text = f"{name_of(subject, pick)} {spread(subject, shown, noise, pick)} at noise {noise:g}, ahead of {closest} by "
    passed = all(difference.is_clear if clearly else difference.mean > 0 for difference in ahead.values())
    return Check(passed, f"{text}{ahead[closest]}")


def best_rival(subject: Subject, rivals: Sequence[str], noise: float, pick: Pick) -> str:
    """The one with the best mean."""
    sign = 1 if higher_is_better(subject, pick) else -1
    return max(rivals, key=lambda rival: sign * mean(subject, rival, noise, pick))
