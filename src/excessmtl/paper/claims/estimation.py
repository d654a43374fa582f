"""Section 4.3, Figure 2: estimated and true excess risks on MultiMNIST."""

from collections.abc import Callable

import pandas as pd

from excessmtl.paper.claims.judging import Check, Finding, excess
from excessmtl.paper.claims.measures import Lacking
from excessmtl.paper.claims.verdicts import claim
from excessmtl.paper.collected import has_steps
from excessmtl.paper.figures.excess_risk import NOISE, agreement, course
from excessmtl.paper.subjects import Subject

_EARLY = 0.1
_MATCH = 0.9


def _on_courses(subject: Subject, ask: Callable[[pd.DataFrame], Check]) -> Finding:
    """Ask about the seeds' mean course of the excess risks."""

    def test(shown: str) -> Check:
        runs = [run for _, run in subject.of(shown, NOISE).iterrows() if has_steps(run)]
        if not runs:
            raise Lacking(f"run folders of {shown} at noise {NOISE:g}")
        # Runs of different lengths are not mixed: a subject has one number of epochs.
        return ask(pd.concat([course(run) for run in runs]).groupby(["task", "noisy", "epoch"], as_index=False).mean())

    return excess(test)


def _means(table: pd.DataFrame, column: str) -> dict[bool, float]:
    """By noisiness of the task."""
    found: dict[bool, float] = table.groupby("noisy")[column].mean().to_dict()
    return found


@claim(
    "4.3, Fig. 2",
    "At first the noisy task has the lower excess risk, since its lowest loss is higher.",
    on="multimnist",
)
def lower_at_first(subject: Subject) -> Finding:
    """Over the first tenth of training at noise 0.6, both the true and the estimated excess risk of the noisy task are
    on average below the clean task's.
    """

    def ask(table: pd.DataFrame) -> Check:
        early = table[table.epoch <= _EARLY * table.epoch.max()]
        true, estimated = _means(early, "true"), _means(early, "estimated")
        text = (
            f"true {true[True]:.2f} (noisy) and {true[False]:.2f} (clean), "
            f"estimated {estimated[True]:.3g} and {estimated[False]:.3g}"
        )
        return Check(true[True] < true[False] and estimated[True] < estimated[False], text)

    return _on_courses(subject, ask)


@claim("4.3, Fig. 2", "As training goes on, the excess risks of both tasks approach 0.", on="multimnist")
def approach_zero(subject: Subject) -> Finding:
    """Over the last tenth of training the estimate of each task is on average less than a tenth of its largest value
    (the true one is so by construction: it is measured from the converged loss).
    """

    def ask(table: pd.DataFrame) -> Check:
        late = table[table.epoch > (1 - _EARLY) * table.epoch.max()]
        rest = (late.groupby("task").estimated.mean() / table.groupby("task").estimated.max()).to_dict()
        text = ", ".join(f"{task} at {100 * share:.0f} % of its largest" for task, share in rest.items())
        return Check(all(share < _EARLY for share in rest.values()), text)

    return _on_courses(subject, ask)


@claim("4.3, Fig. 2", "Up to a constant factor the estimate matches the true excess risk.", on="multimnist")
def matches(subject: Subject) -> Finding:
    """For each task the correlation over training is above 0.9, and the two tasks' factors (slopes through the origin)
    differ by less than a factor of two: one constant must do for both, as weights compare tasks.
    """

    def ask(table: pd.DataFrame) -> Check:
        rows = agreement(table)
        slopes = [row["slope"] for row in rows]
        ratio = max(slopes) / min(slopes) if min(slopes) > 0 else float("inf")
        text = ", ".join(
            f"{row['task']} correlation {row['correlation']:.2f}, factor {row['slope']:.3g}" for row in rows
        )
        return Check(all(row["correlation"] > _MATCH for row in rows) and ratio < 2, text)

    return _on_courses(subject, ask)
