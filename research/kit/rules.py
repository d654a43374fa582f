"""Weights from what is known of the tasks, for all runs at once."""

import math

import torch
from torch import Generator, Tensor

from research.kit.configs import Runs

FEATURES = ("left_irr", "log_n0", "log_r0", "log_r", "log_need", "log_left_irr")
_WIDTH = 32
"""The representation is projected to it."""
_FIRST = 20
"""Steps that r0 and n0 are means of."""


class Statistics:
    """Running losses, first losses and gradient norms, and excess risks, [runs, tasks]."""

    def __init__(self, runs: int, tasks: int, hidden: int, generator: Generator, device: str) -> None:
        zeros = torch.zeros(runs, tasks, device=device)
        self._loss, self._first_loss, self._first_norm = (zeros.clone() for _ in range(3))
        width = min(_WIDTH, hidden)

        def projection() -> Tensor:
            if hidden <= _WIDTH:
                return torch.eye(hidden, device=device)
            return torch.randn(hidden, width, generator=generator, device=device) / math.sqrt(width)

        self._left, self._right = projection(), projection()
        self._signal, self._fisher = (torch.zeros(runs, tasks, width + 1, device=device) for _ in range(2))

    def update(self, losses: Tensor, shared: Tensor, pulls: Tensor, step: int) -> tuple[Tensor, ...]:
        """r, r0, n0 and e / r after this step.

        Args:
            losses: [runs, tasks].
            shared: the representation, [runs, batch, hidden].
            pulls: gradients of the mean losses there, [runs, tasks, batch, hidden].
            step: 1, 2, ...
        """
        batch = shared.shape[1]
        inputs = torch.cat([shared @ self._left, shared.new_ones(*shared.shape[:2], 1)], -1)
        each = (pulls * batch) @ self._right
        mean = torch.einsum("kbj,ktbi->ktji", inputs, each) / batch
        power = (mean**2).sum(-1)
        fisher = torch.einsum("kbj,ktbi->ktj", inputs**2, each**2) / batch
        # Products of the gradients of different samples: noise does not enter their mean.
        signal = (power - fisher / batch) * (batch / (batch - 1))
        self._loss += 0.01 * (losses - self._loss)
        self._signal += 0.01 * (signal - self._signal)
        self._fisher += 0.01 * (fisher - self._fisher)
        if step <= _FIRST:
            self._first_loss += losses
            self._first_norm += power.sum(-1).sqrt()
        seen = min(step, _FIRST)
        loss = self._loss / (1 - 0.99**step)
        first = torch.maximum(self._first_loss / seen, loss / 2)
        damped = (self._fisher + 1e-3 * self._fisher.mean(-1, keepdim=True)).clamp(min=1e-30)
        share = (self._signal / damped).sum(-1).clamp(1e-4, 1)
        return loss, first, self._first_norm / seen, share


class Rules:
    """The weights of all runs, [runs, tasks]."""

    def __init__(self, runs: Runs) -> None:
        self._coefficients = torch.stack([runs.column(name) for name in FEATURES])[:, :, None]
        self._free, self._imtl = (runs.column(name)[:, None] > 0 for name in ("free", "imtl"))
        self._half = runs.column("left_half")[:, None]
        self._any_imtl = any(config.imtl for config in runs.configs)

    def __call__(self, known: tuple[Tensor, ...], pulls: Tensor) -> Tensor:
        """From what `Statistics.update` returns, and for IMTL from the gradients."""
        loss, first, first_norm, share = known
        logs = [value.clamp(min=1e-8).log() for value in (first_norm, first, loss)]
        fixed = loss * (1 - share) / first
        features = torch.stack([fixed, *logs, share.clamp(min=0.01).log(), (self._half + fixed).log()])
        total = (self._coefficients * features).sum(0)
        weights = torch.where(self._free, total.exp() * 0.5, total.softmax(1) * total.shape[1])
        return torch.where(self._imtl, imtl(pulls), weights) if self._any_imtl else weights


def imtl(pulls: Tensor) -> Tensor:
    """Weights under which the sum has the same projection on every task's direction; they sum to m."""
    tasks = pulls.shape[1]
    rows = pulls.flatten(2)
    units = rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    apart, turned = rows[:, :1] - rows[:, 1:], (units[:, :1] - units[:, 1:]).transpose(1, 2)
    matrix = apart @ turned + 1e-12 * torch.eye(tasks - 1, device=pulls.device)
    solved = torch.linalg.solve_ex(matrix.transpose(1, 2), (rows[:, :1] @ turned).transpose(1, 2))[0][..., 0]
    weights = torch.cat([1 - solved.sum(1, keepdim=True), solved], 1) * tasks
    return torch.nan_to_num(weights, nan=1.0).clamp(-20, 20)
