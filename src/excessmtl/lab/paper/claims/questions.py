"""What claims ask about a method on one data set: first what several claims ask, then what one does."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from excessmtl.lab.compare.comparison import SEEDS
from excessmtl.lab.compare.measures import task_score
from excessmtl.lab.paper.claims.judging import Ask, Finding, Lacking, all_hold, opposite
from excessmtl.lab.paper.claims.measures import (
    CLEAN,
    NOISY,
    OVERALL,
    WEIGHT,
    Pick,
    advantage,
    clean_loss,
    clean_weight,
    harm,
    high_noise,
    levels,
    mean,
    noisy_loss,
    spread,
    weight_shift,
)
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, MGDA, PAPER, PAPER_EXCESS, SINGLE_TASK, UNIFORM
from excessmtl.lab.paper.subjects import Runs, Subject

HIGH = 0.8
"""The noise level of Figures 3 and 4."""
SEGMENTATION, DEPTH, NORMALS = (partial(task_score, task=task) for task in ("segmentation", "depth", "normals"))
_RELATIVE, _ABSOLUTE = 1.1, 0.02
_MANY, _PROHIBITIVE = 100, 10
_NOTHING = 0.01
_DRAMATIC = 5
"""Margins: 5 points of a share, 50 % of an error."""


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
    falling = all(later.mean > sooner.mean - later.tolerance / 2 for sooner, later in pairwise(harms))
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


def behind_uniform(subject: Subject, shown: str) -> Finding:
    """The overall score at the highest noise level is clearly below that of uniform weighting."""
    behind = advantage(subject, UNIFORM, shown, high_noise(subject, shown), OVERALL)
    return Finding(behind.clear, f"overall score behind uniform by {behind}")


def slow_with_many_tasks(runs: Runs, shown: str) -> Finding:
    """A step takes more than ten times as long as one of ExcessMTL, with a hundred tasks or more."""
    many = runs.frame[runs.frame.scores.map(len) >= _MANY]
    own = [many[many.shown == name] for name in (shown, PAPER)]
    seconds = [timed.seconds_per_step.mean() for timed in own if timed.seed.nunique() >= SEEDS]
    if len(seconds) < len(own) or not min(seconds) > 0:
        raise Lacking(f"runs of {shown} and {PAPER} with at least 100 tasks, three seeds each")
    factor = seconds[0] / seconds[1]
    return Finding(factor > _PROHIBITIVE, f"{factor:.1f} times as long")


def learns_noisy_better(subject: Subject, shown: str) -> Finding:
    """With less than half of the weight the noisy task is learned better than under uniform weighting."""
    ahead = advantage(subject, shown, UNIFORM, HIGH, NOISY)
    weight = 1 - clean_weight(subject, shown, HIGH).mean()
    text = f"noisy weight {weight:.2f}, {spread(subject, shown, HIGH, NOISY)}, ahead of uniform by {ahead}"
    return Finding(all_hold([ahead.clear, bool(weight < 0.5)]), text)


def as_good_as_alone(subject: Subject, shown: str, noise: float) -> Finding:
    """On both tasks the test loss is at most 10 % and 0.02 nats above the single-task network's."""
    tasks = (subject.setting.clean_tasks[0], subject.setting.noisy_tasks[0])
    pairs = {
        task: [mean(subject, name, noise, pick) for name in (shown, SINGLE_TASK)]
        for task, pick in zip(tasks, (clean_loss, noisy_loss), strict=True)
    }
    text = ", ".join(f"{task} {own:.3f} (alone {alone:.3f})" for task, (own, alone) in pairs.items())
    close = all(own <= _RELATIVE * alone + _ABSOLUTE for own, alone in pairs.values())
    return Finding(close, f"test losses at noise {noise:g}: {text}")


def ahead_of_mgda(subject: Subject, shown: str, least: float, most: float) -> Finding:
    """The overall lead over MGDA, averaged over noise levels."""
    found = [level for level in sorted(subject.of(shown).noise.unique()) if least <= level <= most]
    if not found:
        raise Lacking(f"runs of {shown} at these noise levels")
    leads = {level: advantage(subject, shown, MGDA, level, OVERALL).mean for level in found}
    text = ", ".join(f"{lead:+.1f} at {level:g}" for level, lead in leads.items())
    return Finding(sum(leads.values()) > 0, f"overall score above MGDA's by {text}")


def steadier_weights_than_mgda(subject: Subject, shown: str) -> Finding:
    """The clean weight changes less between noise levels."""
    spans = []
    for name in (shown, MGDA):
        means = [clean_weight(subject, name, level).mean() for level in levels(subject, name)]
        spans.append(max(means) - min(means))
    return Finding(spans[0] < spans[1], f"range {spans[0]:.2f}, MGDA's {spans[1]:.2f}")


def has_no_clean_weight(subject: Subject, shown: str) -> Finding:
    """At the highest noise level the clean tasks have no weight."""
    weight = clean_weight(subject, shown, high_noise(subject, shown)).mean()
    return Finding(bool(weight < _NOTHING), f"clean weight {weight:.3f}")


def close_to_single_task(subject: Subject, shown: str) -> Finding:
    """The clean score is not clearly worse than that of single-task networks, with noise and without."""
    noise = min(high_noise(subject, shown), high_noise(subject, SINGLE_TASK))
    behind = {level: advantage(subject, SINGLE_TASK, shown, level) for level in (0.0, noise)}
    text = ", ".join(f"{difference} at noise {level:g}" for level, difference in behind.items())
    return Finding(all_hold(opposite(difference.clear) for difference in behind.values()), f"behind alone by {text}")


def ahead_of_uniform(subject: Subject, shown: str) -> Finding:
    """At the highest noise level the clean score is above that of uniform weighting."""
    noise = high_noise(subject, shown)
    ahead = advantage(subject, shown, UNIFORM, noise)
    return Finding(ahead.ahead, f"ahead by {ahead} at noise {noise:g}")


def least_affected(subject: Subject, shown: str) -> Finding:
    """Noise costs less on the clean tasks than with any other method."""
    noise = high_noise(subject, shown)
    own = harm(subject, shown, noise)
    others = {rival: harm(subject, rival, noise).mean for rival in (*ADAPTIVE_RIVALS, UNIFORM)}
    least = min(others, key=lambda rival: others[rival])
    text = f"worse by {own} at noise {noise:g}; {least}, next, {others[least]:+.1f}"
    return Finding(own.mean < others[least], text)


def fails(subject: Subject, shown: str) -> Finding:
    """At noise 1 the clean score is less than half of what it is without noise."""
    text = f"{spread(subject, shown, 0.0, CLEAN)} without noise, {spread(subject, shown, 1.0, CLEAN)} at noise 1"
    return Finding(mean(subject, shown, 1.0, CLEAN) < 0.5 * mean(subject, shown, 0.0, CLEAN), text)


def uniform_is_beaten(subject: Subject) -> Finding:
    """More than half of the adaptive methods have a higher clean score at the highest noise level."""
    noise = high_noise(subject, UNIFORM)
    own, scores = mean(subject, UNIFORM, noise, CLEAN), {}
    for shown in (*ADAPTIVE_RIVALS, *PAPER_EXCESS):
        try:
            scores[shown] = mean(subject, shown, noise, CLEAN)
        except Lacking:
            continue
    if len(scores) <= len(ADAPTIVE_RIVALS):
        raise Lacking(f"runs of all methods at noise {noise:g}")
    better = [shown for shown, score in scores.items() if score > own]
    text = f"better than uniform's {100 * own:.1f} at noise {noise:g}: {', '.join(better) or 'none'}"
    return Finding(2 * len(better) > len(scores), f"{text} ({len(better)} of {len(scores)})")


def fails_dramatically(subject: Subject, shown: str) -> Finding:
    """Depth or normals are worse by five clear margins at the highest noise level."""
    noise = high_noise(subject, shown)
    found = {task: harm(subject, shown, noise, pick) for task, pick in (("depth", DEPTH), ("normals", NORMALS))}
    failed = any(change.mean >= _DRAMATIC * change.tolerance for change in found.values())
    return Finding(failed, ", ".join(f"{task} worse by {change}" for task, change in found.items()))


def undertrains_normals(subject: Subject, shown: str) -> Finding:
    """Without noise the normals are clearly worse than those of single-task networks."""
    behind = advantage(subject, SINGLE_TASK, shown, 0.0, NORMALS)
    return Finding(behind.clear, f"behind the single-task network by {behind}")


def warm_up_steadies(runs: Runs) -> Finding:
    """On some data the clean weight varies half as much between seeds with a warm-up."""
    frame = runs.frame[(runs.frame.method == "excess") & (runs.frame.noise == 0)]
    divided = frame[frame.options.map(lambda own: own.get("normalize") == "initial").astype(bool)]
    warm = divided.options.map(lambda own: own.get("warmup_steps", 0) > 0).astype(bool)
    found = {}
    for (benchmark, source), group in divided.groupby(["benchmark", "source"]):
        spreads = {
            with_warmup: own.clean_weight.std()
            for with_warmup, own in group.groupby(warm)
            if own.seed.nunique() >= SEEDS
        }
        if len(spreads) == 2:
            text = f"{benchmark} ({source}): first value {spreads[False]:.3f}, warm-up {spreads[True]:.3f}"
            found[text] = spreads[False] > 2 * spreads[True]
    if not found:
        return Finding(None, "no runs with both, three seeds each")
    return Finding(any(found.values()), "; ".join(found))


def close_to_the_best(subject: Subject, shown: str) -> Finding:
    """At the highest noise level the clean score is not clearly worse than that of the best rival."""
    noise = high_noise(subject, shown)
    found = not_behind_the_best(subject, shown, noise)
    return Finding(found.holds, f"{found.evidence} at noise {noise:g}")
