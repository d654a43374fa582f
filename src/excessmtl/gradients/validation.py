"""Inner products of validation gradients with training gradients, for rules that look one step ahead."""

from collections.abc import Sequence

import torch
from torch import Tensor

from excessmtl.gradients.gather import Gathered


def steps_ahead(batch: Gathered, multipliers: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """All parameters that a plain gradient step with these multipliers would move, and by how much."""
    unscale = 1.0 if batch.scale is None else 1.0 / batch.scale
    parameters, steps = list(batch.parameters), []
    for parameter, rows in zip(batch.parameters, batch.rows, strict=True):
        steps.append((multipliers.to(rows.dtype) @ rows).reshape(parameter.shape))
    for task, own in enumerate(batch.own):
        for leaf, gradient in own:
            parameters.append(leaf)
            steps.append(torch.where(batch.ok[task], gradient, 0) * unscale * multipliers[task])
    return parameters, steps


def cross_products(validation: Gathered, training: Gathered) -> Tensor:
    """[m, m]: validation gradient of task i times training gradient of task j, over all parameters."""
    products = sum((v @ t.T).float() for v, t in zip(validation.rows, training.rows, strict=True))
    cross = products if isinstance(products, Tensor) else training.values.new_zeros(len(training.own))
    unscale = 1.0 if training.scale is None else 1.0 / training.scale
    for i, own in enumerate(validation.own):
        mine = {id(leaf): gradient for leaf, gradient in own}
        for j, others in enumerate(training.own):
            shared = [(mine[id(leaf)], gradient) for leaf, gradient in others if id(leaf) in mine]
            if shared:
                ok = validation.ok[i] & training.ok[j]
                cross = _plus(cross, i, j, torch.where(ok, _dot(shared), 0) * unscale)
    return cross


def _dot(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    return torch.stack([(a.float() * b.float()).sum() for a, b in pairs]).sum()


def _plus(matrix: Tensor, i: int, j: int, value: Tensor) -> Tensor:
    matrix = matrix.clone()
    matrix[i, j] += value
    return matrix
