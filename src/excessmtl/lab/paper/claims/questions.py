"""Questions that one claim asks, about a method on one data set."""

from functools import partial

from excessmtl.lab.compare.comparison import SEEDS
from excessmtl.lab.compare.measures import task_score
from excessmtl.lab.paper.claims.judging import Finding, Lacking, all_hold, opposite
from excessmtl.lab.paper.claims.measures import (
    CLEAN,
    NOISY,
    OVERALL,
    advantage,
    clean_weight,
    harm,
    high_noise,
    levels,
    mean,
    spread,
)
from excessmtl.lab.paper.claims.rules import HIGH, clean_loss, noisy_loss, not_behind_the_best
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, MGDA, PAPER, PAPER_EXCESS, SINGLE_TASK, UNIFORM
from excessmtl.lab.paper.subjects import Subject

SEGMENTATION, DEPTH, NORMALS = (partial(task_score, task=task) for task in ("segmentation", "depth", "normals"))
_RELATIVE, _ABSOLUTE = 1.1, 0.02
_MANY, _PROHIBITIVE = 100, 10
_NOTHING = 0.01
_DRAMATIC = 5
"""Margins: 5 points of a share, 50 % of an error."""


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
    failed = any(change.mean >= _DRAMATIC * change.margin for change in found.values())
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
