"""Appendix C: the implementation's remarks, and SARCOS over noise levels (Figure 9)."""

from functools import partial

from excessmtl.lab.compare.comparison import SEEDS
from excessmtl.lab.paper.claims.judging import Claim, Finding, all_of, both, every, excess, untold
from excessmtl.lab.paper.claims.measures import OVERALL, high_noise
from excessmtl.lab.paper.claims.rules import beats_all, declines, favours_noisy, not_behind_the_best, stays_flat
from excessmtl.lab.paper.collected import Runs
from excessmtl.lab.paper.methods import ADAPTIVE_RIVALS, UNIFORM
from excessmtl.lab.paper.subjects import Subject


def _warm_up_steadies(runs: Runs) -> Finding:
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


def _close_to_the_best(subject: Subject, shown: str) -> Finding:
    noise = high_noise(subject, shown)
    found = not_behind_the_best(subject, shown, noise)
    return Finding(found.holds, f"{found.evidence} at noise {noise:g}")


_remark, _sarcos = partial(Claim, "C.1", None), partial(Claim, "C.2, Fig. 9", "sarcos")
CLAIMS = (
    _remark(
        "Excess risks depend on the scale of the tasks, so that all data must be standardised.",
        "Not judged: all benchmarks are standardised, and none was run without.",
        untold("no run on data that is not standardised"),
    ),
    _remark(
        "Large networks fit pure noise, so that the training loss never settles; weight decay prevents it.",
        "Not judged: it needs the same runs with and without weight decay, and tables of runs do not tell them apart.",
        untold("no study of weight decay has been run"),
    ),
    _remark(
        "Dividing by the first excess risk is unstable; the mean over a warm-up is not.",
        "On some data with at least three seeds of both: the standard deviation over seeds of the clean weight without "
        "noise is more than twice as large with the first value as with a warm-up.",
        _warm_up_steadies,
    ),
    _sarcos(
        "On SARCOS all adaptive methods but ExcessMTL give noisy tasks more weight as noise grows.",
        "For each rival the clean weight at the highest noise level is below 5/7, and at least 0.05 lower than without "
        "noise, 90 % interval above 0.",
        every(ADAPTIVE_RIVALS, favours_noisy),
    ),
    _sarcos(
        "On SARCOS this makes them worse on the clean tasks.",
        "For each rival the clean error at the highest noise level is more than 10 % above that without noise, 90 % "
        "interval above 0.",
        every(ADAPTIVE_RIVALS, declines),
    ),
    _sarcos(
        "On SARCOS ExcessMTL keeps its performance at all noise levels.",
        "At every noise level it is decided that its clean error is not more than 10 % above that without noise: the "
        "90 % interval lies within 10 %, or below.",
        excess(stays_flat),
    ),
    _sarcos(
        "On SARCOS ExcessMTL is significantly better than the other adaptive methods under noise.",
        "At the highest noise level every rival's error is more than 10 % above its own, 90 % interval above 0, both "
        "on the clean tasks and overall.",
        excess(all_of(partial(beats_all, clearly=True), partial(beats_all, clearly=True, pick=OVERALL))),
    ),
    _sarcos(
        "On SARCOS uniform weighting does well, too.",
        "It is decided that its clean error is not clearly worse (the 90 % interval lies within 10 %, or below) than "
        "without noise at any level, nor than the best rival's at the highest.",
        both(every([UNIFORM], stays_flat), every([UNIFORM], _close_to_the_best)),
    ),
)
