"""Theorem 3.1 and Corollary 3.2: gaps over horizons beside the bound, and averaged solutions beside the exact front.

The proof assumes what Algorithm 1 does not do: `compare` runs the same problems with one change at a time.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from excessmtl.lab.paper.theory.descent import ALGORITHM, PROOF, Iterates, Variant, bound, descend, step_sizes
from excessmtl.lab.paper.theory.library import train
from excessmtl.lab.paper.theory.optimum import Solved, weighted_minimum
from excessmtl.lab.paper.theory.problems import Array
from excessmtl.pareto import hypervolume

Row = dict[str, Any]
VARIANTS = {
    "the proof: one task a step": PROOF,
    "all tasks a step": ALGORITHM,
    "all tasks, new weights at once": replace(ALGORITHM, fresh=True),
    "all tasks, no projection": replace(ALGORITHM, projected=False),
    "all tasks, paper's estimate": replace(ALGORITHM, risks="paper"),
    "Algorithm 1 (all of these)": replace(ALGORITHM, risks="paper", projected=False, fresh=True),
}


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


def compare(solved: Solved, horizons: list[int], runs: int, seed: int) -> list[Row]:
    """One row per variant and horizon."""
    return [
        {"variant": name, **row}
        for name, variant in VARIANTS.items()
        for row in measure(solved, horizons, runs, seed, variant)
    ]


def estimators(solved: Solved, steps: int, batch: int, runs: int) -> list[Row]:
    """The library's ExcessMTL with both estimators, and uniform weights, with the proof's step sizes for `steps` steps.

    Means over runs. The robust estimator has weights of its own making in place of the multiplicative update, so
    nothing in the theorem speaks of it: it is here because it is what users run.
    """
    problem, rows = solved.problem, []
    eta_theta, eta_alpha = step_sizes(solved, steps, ALGORITHM)
    chosen: dict[str, dict[str, Any]] = {
        "uniform weights": {"method": "uniform", "options": {}},
        "paper's estimate": {"method": "excess", "options": {"estimator": "paper", "step_size": eta_alpha}},
        "robust estimate": {"method": "excess", "options": {"estimator": "robust"}},
    }
    for name, own in chosen.items():
        found = [train(problem, **own, steps=steps, rate=eta_theta, batch=batch, seed=seed) for seed in range(runs)]
        mean = sum(solved.excess_risks(thetas.mean(0)).max() for thetas, _ in found) / runs
        last = sum(solved.excess_risks(thetas[-1]).max() for thetas, _ in found) / runs
        noisy = sum(float(weights[-steps // 4 :, 1::2].sum(1).mean()) for _, weights in found) / runs
        rows.append(
            {
                "problem": problem.kind,
                "tasks": problem.tasks,
                "estimator": name,
                "steps": steps,
                "batch": batch,
                "runs": runs,
                "worst_task": mean - solved.value,
                "last_iterate": last - solved.value,
                "noisy_weight": noisy,
                "noisy_weight_of_the_saddle_point": float(solved.weights[1::2].sum()),
            }
        )
    return rows


def exact_front(solved: Solved, points: int = 1001) -> Array:
    """[points, 2] excess risks of the minimisers of every weighting: all of the front, as both losses are convex."""
    share = np.linspace(0, 1, points)
    # Neither weight is zero: a zero weight leaves the other task free, and such a point may be dominated.
    share = 1e-4 + (1 - 2e-4) * share
    return solved.excess_risks(weighted_minimum(solved.problem, np.stack((share, 1 - share), 1)).theta)


def improvable(front: Array, risks: Array) -> Array:
    """By how much some point of the front is better in *every* task: max over it of the least improvement, [r].

    For any theta' and any weights w: min_i (E_i - E_i(theta')) <= sum_i w_i (E_i - E_i(theta')), and with the averaged
    weights the right side is at most the gap of Corollary 3.2. So that gap is the tolerance for being on the front.
    """
    return np.asarray((risks[:, None] - front[None]).min(2).max(1))


def approach(solved: Solved, horizons: list[int], runs: int, seed: int) -> tuple[Array, list[Row]]:
    """The front, and for each oracle and horizon where the averaged solution is beside it."""
    front = exact_front(solved)
    corner = front.max(0) * 1.1
    whole, rows = hypervolume(front, corner), []
    for variant in (PROOF, ALGORITHM):
        for horizon in horizons:
            at = descend(solved, horizon, runs, seed, variant)
            risks, found = solved.excess_risks(at.mean_theta), gaps(solved, at)
            rows.append(
                {
                    "problem": solved.problem.kind,
                    "sampled": variant.sampled,
                    "horizon": horizon,
                    "runs": runs,
                    "excess_1": float(risks[:, 0].mean()),
                    "excess_2": float(risks[:, 1].mean()),
                    "improvable": float(improvable(front, risks).max()),
                    "tolerance": float(found["corollary_mean_weights"].max()),
                    "holds": bool((improvable(front, risks) <= found["corollary_mean_weights"] + 1e-9).all()),
                    "min_max": solved.value,
                    "front_hypervolume": whole,
                    "weight_1": float(at.mean_weights[:, 0].mean()),
                }
            )
    return front, rows
