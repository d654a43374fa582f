"""The algorithm that the proof of Theorem 3.1 analyses, and what Algorithm 1 changes in it.

Stochastic mirror descent on min over theta, max over alpha of sum_i alpha_i E_i(theta) (Nemirovski et al., 2009,
section 3; the paper cites its bound). For a horizon of T steps, known before the first:

    M^2       = 2 (B_theta^2 M_theta^2 + log(m) M_alpha^2)        gamma = 2 / (M sqrt(5 T))
    theta_t+1 = project(theta_t - 2 B_theta^2 gamma G_theta)      gradient step
    alpha_t+1 ~ alpha_t exp(2 log(m) gamma G_alpha)               multiplicative step, Eq. 9

and the averages of theta_1..theta_T and alpha_1..alpha_T have an expected duality gap of at most 2 M sqrt(5 / T). The
paper's stochastic gradients look at one task i' a step and multiply it by m, so M_theta = m L and M_alpha = m B_l.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from excessmtl.excess.paper import add_squares, excess_risks
from excessmtl.lab.paper.theory.optimum import Solved
from excessmtl.lab.paper.theory.problems import Array

_CHUNK = 1024
"""Random numbers are drawn for so many steps at a time."""


@dataclass(frozen=True)
class Variant:
    """As in the proof by default; every field is one way in which what one runs differs from it."""

    sampled: Literal["one task", "all tasks"] = "one task"
    """All tasks a step (Algorithm 1) needs no factor m: M_theta = L and M_alpha = B_l."""
    risks: Literal["known", "paper"] = "known"
    """What moves alpha: the sample's loss minus the task's exact minimum, or the paper's estimate (Eq. 6 and 7)."""
    projected: bool = True
    fresh: bool = False
    """Whether theta steps with the new alpha, as in Algorithm 1."""
    towards: Literal[1, -1] = 1
    """-1 is deliberately wrong: weight moves away from the larger excess risk."""

    def factor(self, tasks: int) -> float:
        """What stands before L and B_l in M_theta and M_alpha."""
        return float(tasks) if self.sampled == "one task" else 1.0


PROOF = Variant()
ALGORITHM = replace(PROOF, sampled="all tasks")


def bound(solved: Solved, horizon: int, factor: float | None = None) -> float:
    """2 m sqrt(10 (B_theta^2 L^2 + B_l^2 log m) / T), or with another factor in place of m."""
    problem = solved.problem
    size = (problem.radius * problem.lipschitz) ** 2 + problem.largest_loss**2 * np.log(problem.tasks)
    return float(2 * (problem.tasks if factor is None else factor) * np.sqrt(10 * size / horizon))


def step_sizes(solved: Solved, horizon: int, variant: Variant) -> tuple[float, float]:
    """(eta_theta, eta_alpha) of the proof. In terms of the bound, M = bound sqrt(T) / (2 sqrt(5))."""
    problem = solved.problem
    scale = bound(solved, horizon, variant.factor(problem.tasks)) * np.sqrt(horizon / 20)
    gamma = 2 / (scale * np.sqrt(5 * horizon))
    return float(2 * problem.radius**2 * gamma), float(2 * np.log(problem.tasks) * gamma)


@dataclass(frozen=True)
class Iterates:
    """Where r independent runs end: [r, d] and [r, m]."""

    mean_theta: Array
    last_theta: Array
    mean_weights: Array
    last_weights: Array
    farthest: float
    """The largest norm of theta on the way (every 16th step and the last)."""


def descend(solved: Solved, horizon: int, runs: int, seed: int, variant: Variant = PROOF) -> Iterates:
    """`horizon` steps from theta = 0 and equal weights, `runs` times."""
    problem = solved.problem
    tasks, samples, size = problem.features.shape
    eta_theta, eta_alpha = step_sizes(solved, horizon, variant)
    generator = np.random.default_rng([seed, horizon, tasks])
    columns = np.arange(tasks)
    theta, scores = np.zeros((runs, size)), np.zeros((runs, tasks))
    squares = torch.zeros(runs * tasks, size, dtype=torch.float64)
    sum_theta, sum_weights, farthest = np.zeros_like(theta), np.zeros_like(scores), 0.0
    weights = _softmax(scores)
    last = theta
    for begin in range(0, horizon, _CHUNK):
        steps = min(_CHUNK, horizon - begin)
        drawn = generator.integers(samples, size=(steps, runs, tasks))
        chosen = generator.integers(tasks, size=(steps, runs, 1)) == columns
        for step in range(steps):
            weights, last = _softmax(scores), theta
            sum_theta += theta
            sum_weights += weights
            x, y = problem.features[columns, drawn[step]], problem.targets[columns, drawn[step]]
            s = (x * theta[:, None]).sum(2)
            gradients = problem.loss.slope(s, y)[..., None] * x
            if variant.risks == "known":
                gains = problem.loss.value(s, y) - solved.floors
            else:
                rows = torch.from_numpy(gradients.reshape(-1, size))
                risks = excess_risks(rows, squares)
                add_squares(squares, rows)
                gains = risks.numpy().reshape(runs, tasks)
            # The proof's oracle: m times the sampled task, nothing of the others.
            counted = tasks * chosen[step] if variant.sampled == "one task" else 1.0
            scores = scores + variant.towards * eta_alpha * counted * gains
            applied = _softmax(scores) if variant.fresh else weights
            theta = theta - eta_theta * ((counted * applied)[..., None] * gradients).sum(1)
            if variant.projected:
                theta = problem.project(theta)
            if step % 16 == 0:
                farthest = max(farthest, float(np.sqrt((theta * theta).sum(1).max())))
    farthest = max(farthest, float(np.sqrt((theta * theta).sum(1).max())))
    return Iterates(sum_theta / horizon, last, sum_weights / horizon, weights, farthest)


def _softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))
