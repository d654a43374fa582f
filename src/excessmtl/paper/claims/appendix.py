"""Appendix C: the implementation's remarks, and SARCOS over noise levels (Figure 9)."""

from excessmtl.paper.claims.judging import Check, Finding, both, every, excess
from excessmtl.paper.claims.measures import CLEAN, OVERALL, advantage, high_noise
from excessmtl.paper.claims.rules import beats_all, best_rival, declines, favours_noisy, stays_flat
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.collected import Runs
from excessmtl.paper.methods import ADAPTIVE_RIVALS, UNIFORM
from excessmtl.paper.subjects import Subject

_SEEDS_FOR_SPREAD = 3


@claim("C.1", "Excess risks depend on the scale of the tasks, so that all data must be standardised.")
def standardised(runs: Runs) -> Finding:
    """Not judged: all benchmarks are standardised, and none was run without."""
    return Finding(None, "no run on data that is not standardised")


@claim("C.1", "Large networks fit pure noise, so that the training loss never settles; weight decay prevents it.")
def weight_decay(runs: Runs) -> Finding:
    """Not judged: it needs the same runs with and without weight decay, and tables of runs do not tell them apart."""
    return Finding(None, "no study of weight decay has been run")


@claim("C.1", "Dividing by the first excess risk is unstable; the mean over a warm-up is not.")
def warm_up(runs: Runs) -> Finding:
    """On some data with at least three seeds of both: the standard deviation over seeds of the clean weight without
    noise is more than twice as large with the first value as with a warm-up.
    """
    frame = runs.frame[(runs.frame.method == "excess") & (runs.frame.noise == 0)]
    divided = frame[frame.options.map(lambda own: own.get("normalize") == "initial").astype(bool)]
    warm = divided.options.map(lambda own: own.get("warmup_steps", 0) > 0).astype(bool)
    found = []
    for (benchmark, source), group in divided.groupby(["benchmark", "source"]):
        spreads = {}
        for with_warmup, own in group.groupby(warm.loc[group.index]):
            if own.groupby("seed").ngroups >= _SEEDS_FOR_SPREAD:
                spreads[bool(with_warmup)] = own.clean_weight.std()
        if len(spreads) == 2:
            text = f"{benchmark} ({source}): first value {spreads[False]:.3f}, warm-up {spreads[True]:.3f}"
            found.append(Check(spreads[False] > 2 * spreads[True], text))
    if not found:
        return Finding(None, "no runs with both, three seeds each")
    return Finding(any(check.ok for check in found), "; ".join(check.text for check in found))


@claim(
    "C.2, Fig. 9",
    "On SARCOS all adaptive methods but ExcessMTL give noisy tasks more weight as noise grows.",
    on="sarcos",
)
def rivals_favour_noisy(subject: Subject) -> Finding:
    """For each rival the clean weight at the highest noise level is below 5/7, and at least 0.05 lower than without
    noise, 90 % interval above 0.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: favours_noisy(subject, shown))


@claim("C.2, Fig. 9", "On SARCOS this makes them worse on the clean tasks.", on="sarcos")
def rivals_decline(subject: Subject) -> Finding:
    """For each rival the clean error at the highest noise level is more than 10 % above that without noise, 90 %
    interval above 0.
    """
    return every(ADAPTIVE_RIVALS, lambda shown: declines(subject, shown))


@claim("C.2, Fig. 9", "On SARCOS ExcessMTL keeps its performance at all noise levels.", on="sarcos")
def excess_is_flat(subject: Subject) -> Finding:
    """At no noise level is its clean error more than 10 % above that without noise with the 90 % interval above 0."""
    return excess(lambda shown: stays_flat(subject, shown))


@claim(
    "C.2, Fig. 9",
    "On SARCOS ExcessMTL is significantly better than the other adaptive methods under noise.",
    on="sarcos",
)
def excess_is_better(subject: Subject) -> Finding:
    """At the highest noise level every rival's error is more than 10 % above its own, 90 % interval above 0, both on
    the clean tasks and overall.
    """

    def test(shown: str) -> Check:
        noise = high_noise(subject, shown)
        found = [beats_all(subject, shown, ADAPTIVE_RIVALS, noise, pick, clearly=True) for pick in (CLEAN, OVERALL)]
        return Check(all(check.ok for check in found), "; ".join(check.text for check in found))

    return excess(test)


@claim("C.2, Fig. 9", "On SARCOS uniform weighting does well, too.", on="sarcos")
def uniform_does_well(subject: Subject) -> Finding:
    """At the highest noise level its clean error is not clearly worse (10 %, 90 % interval above 0) than without noise,
    nor than the best rival's.
    """
    flat = every([UNIFORM], lambda shown: stays_flat(subject, shown))

    def close(shown: str) -> Check:
        noise = high_noise(subject, shown)
        best = best_rival(subject, ADAPTIVE_RIVALS, noise, CLEAN)
        behind = advantage(subject, best, shown, noise)
        return Check(not behind.is_clear, f"behind {best} by {behind} at noise {noise:g}")

    return both(flat, every([UNIFORM], close))
