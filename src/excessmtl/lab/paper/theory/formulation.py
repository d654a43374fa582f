"""The formulation: Eq. 2 against Eq. 8, the multiplicative update (Eq. 9), Tchebycheff against linear scalarization."""

import numpy as np
import torch
from scipy.optimize import linprog, minimize

from excessmtl.lab.paper.theory.convergence import Row
from excessmtl.lab.paper.theory.problems import Array
from excessmtl.pareto import hypervolume, pareto_front
from excessmtl.solvers.multiplicative import ascend


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
