"""Section 4.3, Figure 2: estimated and true excess risks on MultiMNIST."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from excessmtl.lab.paper.claims.judging import Claim, Finding, Judge, excess
from excessmtl.lab.paper.claims.measures import Lacking, check_seeds
from excessmtl.lab.paper.figures.excess_risk import NOISE, agreement, course
from excessmtl.lab.paper.subjects import Subject

_EARLY = 0.1
_MATCH = 0.9


def _on_courses(ask: Callable[[pd.DataFrame], Finding]) -> Judge:
    """Ask about the seeds' mean course of the excess risks."""

    def asked(subject: Subject, shown: str) -> Finding:
        courses = [course(run) for _, run in subject.of(shown, NOISE).dropna(subset="steps_path").iterrows()]
        if not courses:
            raise Lacking(f"run folders of {shown} at noise {NOISE:g}")
        check_seeds(len(courses), shown, NOISE)
        # Runs of different lengths are not mixed: a subject has one number of epochs.
        return ask(pd.concat(courses).groupby(["task", "noisy", "epoch"], as_index=False).mean())

    return excess(asked)


def _lower_at_first(table: pd.DataFrame) -> Finding:
    early = table[table.epoch <= _EARLY * table.epoch.max()]
    means = early.groupby("noisy")[["true", "estimated"]].mean()
    clean, noisy = means.loc[False], means.loc[True]
    text = (
        f"true {noisy.true:.2f} (noisy) and {clean.true:.2f} (clean), "
        f"estimated {noisy.estimated:.3g} and {clean.estimated:.3g}"
    )
    return Finding(bool((noisy < clean).all()), text)


def _approach_zero(table: pd.DataFrame) -> Finding:
    late = table[table.epoch > (1 - _EARLY) * table.epoch.max()]
    rest = late.groupby("task").estimated.mean() / table.groupby("task").estimated.max()
    text = ", ".join(f"{task} at {100 * share:.0f} % of its largest" for task, share in rest.items())
    return Finding(bool((rest < _EARLY).all()), text)


def _matches(table: pd.DataFrame) -> Finding:
    rows = agreement(table)
    slopes = [row["slope"] for row in rows]
    ratio = max(slopes) / min(slopes) if min(slopes) > 0 else float("inf")
    text = ", ".join(f"{row['task']} correlation {row['correlation']:.2f}, factor {row['slope']:.3g}" for row in rows)
    return Finding(all(row["correlation"] > _MATCH for row in rows) and ratio < 2, text)


_claim = partial(Claim, "4.3, Fig. 2", "multimnist")
CLAIMS = (
    _claim(
        "At first the noisy task has the lower excess risk, since its lowest loss is higher.",
        "Over the first tenth of training at noise 0.6, both the true and the estimated excess risk of the noisy task "
        "are on average below the clean task's.",
        _on_courses(_lower_at_first),
    ),
    _claim(
        "As training goes on, the excess risks of both tasks approach 0.",
        "Over the last tenth of training the estimate of each task is on average less than a tenth of its largest "
        "value (the true one is so by construction: it is measured from the converged loss).",
        _on_courses(_approach_zero),
    ),
    _claim(
        "Up to a constant factor the estimate matches the true excess risk.",
        "For each task the correlation over training is above 0.9, and the two tasks' factors (slopes through the "
        "origin) differ by less than a factor of two: one constant must do for both, as weights compare tasks.",
        _on_courses(_matches),
    ),
)
