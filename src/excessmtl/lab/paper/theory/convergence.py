"""Theorem 3.1 and Corollary 3.2: the gap for a range of horizons, beside the bound."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from excessmtl.lab.paper.theory.descent import PROOF, Iterates, Variant, bound, descend
from excessmtl.lab.paper.theory.optimum import Solved
from excessmtl.lab.paper.theory.problems import Array

Row = dict[str, Any]


def gaps(solved: Solved, at: Iterates) -> dict[str, Array]:
    """Every gap the theorem, its proof and the corollary speak of, for each run [r].

    Where a minimum over theta is subtracted, a proven lower bound of it is: what is shown is never too small.
    """
    risks = solved.excess_risks(at.mean_theta)
    last_value, mean_value = (at.last_weights * risks).sum(1), (at.mean_weights * risks).sum(1)
    last_floor, mean_floor = solved.lower(at.last_weights), solved.lower(at.mean_weights)
    return {
        "stated": last_value - solved.value,  # the left side of Theorem 3.1
        "duality_gap": risks.max(1) - mean_floor,  # what the proof bounds
        "worst_task": risks.max(1) - solved.value,  # how far from the min-max
        "corollary_last_weights": last_value - last_floor,  # Corollary 3.2 as stated
        "corollary_mean_weights": mean_value - mean_floor,  # Corollary 3.2 as far as the proof carries
        "last_iterate": solved.excess_risks(at.last_theta).max(1) - solved.value,
    }


def measure(solved: Solved, horizons: Sequence[int], runs: int, seed: int, variant: Variant = PROOF) -> list[Row]:
    """One row per horizon: means over runs, the standard error of the duality gap, and the bound."""
    problem, rows = solved.problem, []
    for horizon in horizons:
        at = descend(solved, horizon, runs, seed, variant)
        found = gaps(solved, at)
        limit = bound(solved, horizon)
        rows.append(
            {
                "problem": problem.kind,
                "tasks": problem.tasks,
                "sampled": variant.sampled,
                "risks": variant.risks,
                "horizon": horizon,
                "runs": runs,
                **{name: float(value.mean()) for name, value in found.items()},
                "duality_gap_se": float(found["duality_gap"].std(ddof=1) / np.sqrt(runs)),
                "bound": limit,
                "bound_without_m": bound(solved, horizon, 1.0),
                "looseness": limit / float(found["duality_gap"].mean()),
                "farthest": at.farthest,
                "L": problem.lipschitz,
                "B_l": problem.largest_loss,
                "B_theta": problem.radius,
                "min_max": solved.value,
                "certificate": solved.error,
            }
        )
    return rows


def rate(rows: Sequence[Row], column: str = "duality_gap") -> float:
    """r of the fit gap ~ T^-r over the horizons (least squares in logarithms)."""
    horizons, values = (np.log([row[name] for row in rows]) for name in ("horizon", column))
    return float(-np.polyfit(horizons, values, 1)[0])
