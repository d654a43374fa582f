"""Corollary 3.2 on two tasks: the exact front, and how much a solution could still be improved in both at once."""

import numpy as np

from excessmtl.lab.paper.theory.convergence import Row, gaps
from excessmtl.lab.paper.theory.descent import ALGORITHM, PROOF, descend
from excessmtl.lab.paper.theory.optimum import Solved, weighted_minimum
from excessmtl.lab.paper.theory.problems import Array
from excessmtl.pareto import hypervolume


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
