"""Exact minima, each with a certificate: a proven upper bound on how far the value found is above the true one.

On a ball of radius B a convex f satisfies f(x) - min f <= grad f(x).x + B |grad f(x)| (the linear lower bound at x,
minimised over the ball), so the error of a minimum is known without knowing the minimum.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import nnls

from excessmtl.lab.paper.theory.problems import Array, Problem


@dataclass(frozen=True)
class Minimum:
    """Minimisers, their values and certificates (leading dimensions as asked for)."""

    theta: Array
    value: Array
    error: Array


def weighted_minimum(problem: Problem, weights: Array, most: int = 20_000, tolerance: float = 1e-11) -> Minimum:
    """min over the ball of sum_i w_i l_i for each row of `weights` [r, m], by accelerated projected gradient."""
    theta = np.zeros((len(weights), problem.features.shape[2]))
    ahead, momentum = theta.copy(), np.ones((len(weights), 1))
    steepest = problem.loss.curvature * (problem.features**2).sum(-1).max() * weights.sum(1, keepdims=True)

    def slope(at: Array) -> Array:
        return np.asarray(np.einsum("rm,rmd->rd", weights, problem.gradients(at)))

    def error(at: Array) -> Array:
        gradient = slope(at)
        return np.asarray((gradient * at).sum(1) + problem.radius * np.linalg.norm(gradient, axis=1))

    for iteration in range(most):
        moved = problem.project(ahead - slope(ahead) / steepest)
        # Momentum that points uphill is dropped (O'Donoghue and Candes, 2015).
        uphill = ((ahead - moved) * (moved - theta)).sum(1, keepdims=True) > 0
        momentum = np.where(uphill, 1, momentum)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + np.where(uphill, 0, (momentum - 1) / following) * (moved - theta)
        theta, momentum = moved, following
        if iteration % 50 == 49 and error(theta).max() < tolerance:
            break
    return Minimum(theta, (weights * problem.risks(theta)).sum(1), np.maximum(error(theta), 0))


@dataclass(frozen=True)
class Solved:
    """A problem with its exact minima and the value of its min-max over excess risks (Eq. 2)."""

    problem: Problem
    floors: Array
    """[m] min l_i"""
    theta: Array
    """[d] argmin max_i E_i"""
    weights: Array
    """[m] of the saddle point"""
    value: float
    """min max_i E_i"""
    error: float
    """Certificate of everything above."""

    def excess_risks(self, theta: Array) -> Array:
        """[..., d] -> [..., m]"""
        return self.problem.risks(theta) - self.floors

    def lower(self, weights: Array) -> Array:
        """[r, m] -> [r]: a proven lower bound of min over theta of sum_i w_i E_i, tight to about 1e-11."""
        found = weighted_minimum(self.problem, weights)
        return np.asarray(found.value - found.error - weights @ self.floors)


def solve(problem: Problem) -> Solved:
    """Floors by projected gradient, the min-max by sequential quadratic programming, its weights from duality."""
    single = weighted_minimum(problem, np.eye(problem.tasks))
    floors = single.value
    theta, value = balance(problem, floors)
    weights = _saddle_weights(problem, theta, problem.risks(theta) - floors)
    dual = weighted_minimum(problem, weights[None])
    below = float(dual.value[0] - dual.error[0] - weights @ floors)
    return Solved(problem, floors, theta, weights, value, value - below + float(single.error.max()))


def balance(problem: Problem, floors: Array) -> tuple[Array, float]:
    """argmin and min over the ball of max_i (l_i - floor_i), on the epigraph. With zero floors: the largest loss."""
    size = problem.features.shape[2]

    def above(theta: Array) -> Array:
        return problem.risks(theta) - floors

    start = np.zeros(size)
    found = scipy_minimize(
        lambda x: x[-1],
        np.append(start, above(start).max()),
        jac=lambda x: np.eye(size + 1)[-1],
        constraints=[
            {
                "type": "ineq",
                "fun": lambda x: x[-1] - above(x[:-1]),
                "jac": lambda x: np.column_stack((-problem.gradients(x[:-1]), np.ones(problem.tasks))),
            },
            {
                "type": "ineq",
                "fun": lambda x: problem.radius**2 - x[:-1] @ x[:-1],
                "jac": lambda x: np.append(-2 * x[:-1], 0),
            },
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    theta = problem.project(found.x[:-1])
    return theta, float(above(theta).max())


def _saddle_weights(problem: Problem, theta: Array, excess: Array) -> Array:
    """Multipliers of the worst tasks: their combined gradient vanishes, or points out of the ball at its edge."""
    worst = np.flatnonzero(excess > excess.max() - 1e-6 * max(1.0, excess.max()))
    columns = problem.gradients(theta)[worst].T
    if theta @ theta > (problem.radius * (1 - 1e-6)) ** 2:
        columns = np.column_stack((columns, theta))
    sums = np.append(np.ones(len(worst)), np.zeros(columns.shape[1] - len(worst)))
    multipliers, _ = nnls(np.vstack((columns, sums)), np.append(np.zeros(len(theta)), 1.0))
    weights = np.zeros(problem.tasks)
    weights[worst] = multipliers[: len(worst)]
    return np.asarray(weights / weights.sum())
