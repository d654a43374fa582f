"""Theorem 3.3 on a small smooth network: min over k of E|sum_i alpha_i grad l_i|^2 beside 6 m sigma sqrt(B_l G / T).

Two tasks share one tanh layer; outputs go through tanh as well and labels lie in [-1, 1], so a squared error halved is
at most B_l = 2, exactly. L, G and sigma have no closed form here: they are the largest values found at the points that
pilot runs visit, and the runs themselves are checked against them afterwards.

The proof's step sizes: eta_theta = 2 sqrt(B_l) / (sigma sqrt(T G)), at most min(1 / B_l, 1 / (G m)), and
eta_alpha = min(1 / (2 B_l T), sqrt(G / m) / (12 L sqrt(B_l T))). The paper prints sqrt(G) / (2 B_l T) and sqrt(m G) in
the second term; with these its own sum comes to (4 + sqrt(G) + m) m sigma sqrt(B_l G / T), so the smaller of each is
taken here, with which it comes to the 6 of the theorem.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from excessmtl.lab.paper.theory.convergence import Row
from excessmtl.pareto import pareto_stationarity

_INPUTS, _HIDDEN, _TASKS, _BATCH = 2, 5, 2, 8
_SIZE = _HIDDEN * (_INPUTS + 1) + _TASKS * (_HIDDEN + 1)
LARGEST_LOSS = 2.0


@dataclass(frozen=True)
class Constants:
    """Estimated over visited points, but for B_l."""

    lipschitz: float
    smoothness: float
    sigma: float

    def bound(self, horizon: int) -> float:
        """6 m sigma sqrt(B_l G / T)"""
        return 6 * _TASKS * self.sigma * math.sqrt(LARGEST_LOSS * self.smoothness / horizon)

    @property
    def cap(self) -> float:
        """What eta_theta never exceeds."""
        return min(1 / LARGEST_LOSS, 1 / (self.smoothness * _TASKS))

    def step_sizes(self, horizon: int) -> tuple[float, float]:
        """(eta_theta, eta_alpha), see the top of this file."""
        theta = 2 * math.sqrt(LARGEST_LOSS) / (self.sigma * math.sqrt(horizon * self.smoothness))
        second = math.sqrt(self.smoothness / _TASKS) / (12 * self.lipschitz * math.sqrt(LARGEST_LOSS * horizon))
        printed = math.sqrt(self.smoothness) / (2 * LARGEST_LOSS * horizon)
        return min(theta, self.cap), min(1 / (2 * LARGEST_LOSS * horizon), printed, second)

    @property
    def first_horizon(self) -> int:
        """From here on the formula for eta_theta is below its cap."""
        return math.ceil(4 * LARGEST_LOSS / (self.sigma**2 * self.smoothness * self.cap**2))


def data(seed: int = 0, samples: int = 64) -> tuple[Tensor, Tensor]:
    """Inputs [n, 2], labels [n, 2]: two smooth functions of them, the second with a third of its signs flipped."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, _INPUTS, generator=generator, dtype=torch.float64)
    clean = torch.stack((torch.sin(2 * x[:, 0]), torch.cos(2 * x[:, 0] + x[:, 1])), 1)
    flips = torch.where(torch.rand(samples, generator=generator, dtype=torch.float64) < 1 / 3, -1.0, 1.0)
    return x, clean * torch.stack((torch.ones_like(flips), flips), 1)


def losses(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """[..., P], [..., n, 2], [..., n, m] -> [..., n, m]: the loss of every sample in every task."""
    first, second = torch.split(theta, [_HIDDEN * (_INPUTS + 1), _TASKS * (_HIDDEN + 1)], -1)
    first = first.reshape(*first.shape[:-1], _INPUTS + 1, _HIDDEN)
    second = second.reshape(*second.shape[:-1], _HIDDEN + 1, _TASKS)
    hidden = torch.tanh(x @ first[..., :-1, :] + first[..., -1:, :])
    return (torch.tanh(hidden @ second[..., :-1, :] + second[..., -1:, :]) - y).square() / 2


def constants(points: Tensor, x: Tensor, y: Tensor) -> Constants:
    """The largest gradient, Hessian norm and gradient noise (root mean square, batches of 8) over `points` [k, P]."""
    per_sample = torch.func.vmap(torch.func.jacrev(lambda theta: losses(theta, x, y)))(points)  # [k, n, m, P]
    # Reverse mode twice: torch.func.hessian goes forward, which imports a deprecated part of torch and warns.
    twice = torch.func.jacrev(torch.func.jacrev(lambda theta: losses(theta, x, y).mean(0)))
    hessians = torch.func.vmap(twice)(points)
    mean = per_sample.mean(1)
    variance = (per_sample - mean[:, None]).square().sum(-1).mean(1) / _BATCH
    return Constants(
        float(mean.norm(dim=-1).max()),
        float(torch.linalg.eigvalsh(hessians).abs().max()),
        float(variance.max().sqrt()),
    )


def descend(found: Constants, horizon: int, runs: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """About 200 steps k [k], |sum_i alpha_i grad l_i|^2 there [k, runs], and the points themselves [k, runs, P].

    A minimum over some k is no smaller than over all of them, so nothing is flattered by looking at some only.
    """
    x, y = data()
    eta_theta, eta_alpha = found.step_sizes(horizon)
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(runs, _SIZE, generator=generator, dtype=torch.float64)
    scores = torch.zeros(runs, _TASKS, dtype=torch.float64)
    watched = set(np.unique(np.geomspace(1, horizon, 200).astype(int)).tolist())
    steps, squares, points = [], [], []

    def slope(weights: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        theta.requires_grad_()
        risks = losses(theta, inputs, labels).mean(-2)
        (gradient,) = torch.autograd.grad((weights * risks).sum(), theta)
        theta.requires_grad_(False)
        return gradient, risks.detach()

    for step in range(1, horizon + 1):
        weights = scores.softmax(1)
        if step in watched:
            gradient, _ = slope(weights, x, y)
            steps.append(step)
            squares.append(gradient.square().sum(1))
            points.append(theta.clone())
        rows = torch.randint(len(x), (runs, _BATCH), generator=generator)
        gradient, risks = slope(weights, x[rows], y[rows])
        # The floors are not known here; the loss itself is an excess risk against zero, and the step hardly matters:
        # over the whole run log-weights move by at most T eta_alpha B_l <= 1/2.
        scores = scores + eta_alpha * risks
        theta = theta - eta_theta * gradient
    return torch.tensor(steps), torch.stack(squares), torch.stack(points)


def study(horizons: list[int], runs: int, seed: int = 0) -> tuple[list[Row], list[Row]]:
    """Rows per horizon, and the running minimum over k of the longest one for the picture."""
    x, y = data()
    pilot = Constants(1.0, 2.0, 0.3)
    assumed = constants(descend(pilot, horizons[0], runs, seed + 1)[2].flatten(0, 1), x, y)
    rows = []
    for horizon in horizons:
        steps, squares, points = descend(assumed, horizon, runs, seed)
        seen = constants(points.flatten(0, 1), x, y)
        mean = squares.mean(1)
        theta = points[-1, 0].requires_grad_()
        norm, _ = pareto_stationarity(list(losses(theta, x, y).mean(0)), [theta])
        rows.append(
            {
                "horizon": horizon,
                "runs": runs,
                "smallest": float(mean.min()),
                "at_step": int(steps[mean.argmin()]),
                "mean_over_steps_of_last_half": float(mean[steps > horizon // 2].mean()),
                "bound": assumed.bound(horizon),
                "L_squared": assumed.lipschitz**2,
                "eta_theta": assumed.step_sizes(horizon)[0],
                "eta_alpha": assumed.step_sizes(horizon)[1],
                "covered": horizon >= assumed.first_horizon,
                "stationarity_of_one_run": float(norm),
                **{f"{name}_assumed": value for name, value in vars(assumed).items()},
                **{f"{name}_seen": value for name, value in vars(seen).items()},
                "B_l": LARGEST_LOSS,
            }
        )
    columns = {"step": steps, "mean_square": mean, "smallest_so_far": torch.cummin(mean, 0).values}
    return rows, pd.DataFrame(columns).to_dict("records")
