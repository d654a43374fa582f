"""Methods that end in dominated points: two convex tasks that do not even conflict, one with noisy labels.

Task 1 depends on the first parameter only, task 2 on the second only, so one point is best for both and dominates every
other. With e_i the distance of parameter i from its optimum and full gradients (no sampling noise):

- IMTL-G steps along the bisector: d(e_1) = d(e_2) = - e_1 e_2 / (e_1 + e_2), so e_1 - e_2 stays what it was, and when
  one task is done the other one stops.
- GradNorm sees the relative loss of the noisy task stay high, gives it all the weight, and starves the clean one.
- MGDA keeps e_1^2 - e_2^2: it stops as well. A zero gradient of one task is Pareto stationary, but with losses that are
  convex without being strictly so it is not Pareto optimal. GroupDRO starves the clean task like GradNorm.
"""

from typing import Any

import numpy as np

from excessmtl.lab.paper.theory.convergence import Row
from excessmtl.lab.paper.theory.library import train
from excessmtl.lab.paper.theory.problems import Array, Problem
from excessmtl.pareto import dominates

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("uniform", {}),
    "gradnorm": ("gradnorm", {}),
    "imtl": ("imtl", {}),
    "mgda": ("mgda", {}),
    "groupdro": ("groupdro", {"step_size": 0.1}),
    "excess (paper)": ("excess", {"estimator": "paper"}),
}
BEST = np.array([1.0, 0.5])


def example(samples: int = 40, seed: int = 0) -> Problem:
    """Least squares, x_1 = (+-1, 0), x_2 = (0, +-1); labels of task 2 have noise of variance one."""
    generator = np.random.default_rng(seed)
    features = np.zeros((2, samples, 2))
    features[0, :, 0], features[1, :, 1] = generator.choice([-1.0, 1.0], (2, samples))
    targets = np.einsum("mnd,d->mn", features, BEST)
    noise = generator.normal(size=samples)
    along = features[1, :, 1]
    noise -= along * (along @ noise) / samples  # the optimum stays where it is, only the floor rises
    targets[1] += noise / noise.std()
    return Problem("least squares", features, targets, 2.0)


def endings(steps: int = 2000, rate: float = 0.01) -> tuple[list[Row], dict[str, Array]]:
    """Where each method is after `steps` full-gradient steps from zero, and the way there (every tenth step)."""
    problem = example()
    best = problem.risks(BEST)
    rows: list[Row] = []
    ways = {}
    for name, (method, options) in METHODS.items():
        thetas, weights = train(problem, method, options, steps, rate)
        excess = problem.risks(thetas[-1]) - best
        ways[name] = thetas[::10]
        rows.append(
            {
                "method": name,
                "steps": steps,
                "theta_1": thetas[-1, 0],
                "theta_2": thetas[-1, 1],
                "excess_1": float(excess[0]),
                "excess_2": float(excess[1]),
                "weight_1": float(weights[-1, 0]),
                # Excess risks below 1e-6 are what single precision leaves: as good as none.
                "dominated": dominates([0.0, 0.0], np.where(excess < 1e-6, 0, excess)),
            }
        )
    return rows, ways
