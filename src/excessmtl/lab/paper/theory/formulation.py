"""The formulation: Eq. 2 against Eq. 8, the multiplicative update (Eq. 9), Tchebycheff against linear scalarization.

And methods that end in dominated points: two convex tasks that do not even conflict, one with noisy labels.
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
import torch
from scipy.optimize import linprog, minimize

from excessmtl.lab.paper.theory.convergence import Row
from excessmtl.lab.paper.theory.library import train
from excessmtl.lab.paper.theory.problems import Array, Problem
from excessmtl.pareto import dominates, hypervolume, pareto_front
from excessmtl.solvers.multiplicative import ascend

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("uniform", {}),
    "gradnorm": ("gradnorm", {}),
    "imtl": ("imtl", {}),
    "mgda": ("mgda", {}),
    "groupdro": ("groupdro", {"step_size": 0.1}),
    "excess (paper)": ("excess", {"estimator": "paper"}),
}
BEST = np.array([1.0, 0.5])


def identities(trials: int = 50, seed: int = 0) -> list[Row]:
    """Largest deviations over random excess risks of 2 to 32 tasks.

    Eq. 8 (a linear program over the simplex) from Eq. 2 (the maximum); the library's multiplicative step from the
    KL-regularised argmax that stands before Eq. 9, found by a general solver that knows nothing of its closed form.
    """
    generator = np.random.default_rng(seed)
    maximum, update = 0.0, 0.0
    for _ in range(trials):
        tasks = int(generator.integers(2, 33))
        risks, step = generator.exponential(size=tasks), float(generator.uniform(0.1, 2))
        program = linprog(-risks, A_eq=np.ones((1, tasks)), b_eq=[1.0], bounds=(0, None))
        maximum = max(maximum, abs(-program.fun - risks.max()))
        scores = generator.normal(size=tasks)
        ok = torch.ones(tasks, dtype=torch.bool)
        ours = ascend(torch.from_numpy(scores), torch.from_numpy(step * risks), ok).softmax(0).numpy()
        update = max(update, float(np.abs(ours - _argmax(risks, step, np.exp(scores) / np.exp(scores).sum())).max()))
    return [
        {"statement": "Eq. 8 equals Eq. 2", "trials": trials, "largest_deviation": maximum},
        {"statement": "Eq. 9 is the argmax", "trials": trials, "largest_deviation": update},
    ]


def _argmax(risks: Array, step: float, before: Array) -> Array:
    """argmax over the simplex of a.E - KL(a | before) / step."""

    def objective(a: Array) -> tuple[float, Array]:
        ratio = np.log(np.maximum(a, 1e-300) / before)
        return float(a @ ratio - step * a @ risks), ratio + 1 - step * risks

    found = minimize(
        objective,
        np.full(len(risks), 1 / len(risks)),
        jac=True,
        bounds=[(1e-12, 1)] * len(risks),
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: np.ones_like(a)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return np.asarray(found.x)


def welsch(theta: Array) -> Array:
    """[n] -> [n, 2]: one number predicted for two tasks with targets 1 and -1 under the Welsch loss 1 - exp(-r^2).

    Bounded, so it forgives outliers, and not convex: between the targets the front bulges outwards.
    """
    return np.stack((1 - np.exp(-((theta - 1) ** 2)), 1 - np.exp(-((theta + 1) ** 2))), 1)


def scalarizations(weights: int = 41, points: int = 4001) -> tuple[Array, list[Row], list[Row]]:
    """The front, the global minimiser of each scalarization for each weight (on a fine grid), and a summary.

    On a grid nothing depends on an optimiser: what a scalarization does not reach here it reaches nowhere.
    """
    losses = welsch(np.linspace(-2, 2, points))
    front = losses[pareto_front(losses)]
    front = front[np.argsort(front[:, 0])]
    found: list[Row] = []
    for share in np.linspace(0.01, 0.99, weights):
        pair = np.array([share, 1 - share])
        for name, values in (("linear", losses @ pair), ("tchebycheff", (losses * pair).max(1))):
            best = losses[values.argmin()]
            found.append({"scalarization": name, "weight_1": share, "loss_1": best[0], "loss_2": best[1]})
    summary: list[Row] = []
    for name in ("linear", "tchebycheff"):
        reached = np.array([(row["loss_1"], row["loss_2"]) for row in found if row["scalarization"] == name])
        middle = (reached.min(1) > 0.3).mean()
        summary.append(
            {
                "scalarization": name,
                "weights": weights,
                "share_with_both_losses_above_0.3": float(middle),
                "hypervolume": hypervolume(reached, [1.0, 1.0]),
                "hypervolume_of_the_front": hypervolume(front, [1.0, 1.0]),
            }
        )
    return front, found, summary


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
