"""Inner products of validation gradients with training gradients, for rules that look one step ahead."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl import inputs
from excessmtl.gradients.cut import no_cut
from excessmtl.gradients.gather import gather
from excessmtl.gradients.gathered import Gathered, exact
from excessmtl.gradients.graph import explore
from excessmtl.gradients.lookahead import moved
from excessmtl.gradients.observe import total

Losses = Mapping[str, Tensor | None]
Validation = Callable[[], Losses] | Losses


def validation_products(
    validation: Validation,
    tasks: Sequence[str],
    batches: Sequence[Gathered],
    multipliers: Tensor,
    module: nn.Module | None,
) -> Tensor:
    """[m, m] products of validation gradients (rows) and training gradients (columns).

    A function is called with the parameters moved by `multipliers` times the training gradients; losses that are there
    already stand for the first-order form.
    """
    parameters = batches[-1].parameters

    def products(losses: Any) -> Tensor:
        ordered = inputs.ordered_losses(losses, tasks, "validation_losses")
        missing = [task for task, loss in zip(tasks, ordered, strict=True) if loss is None]
        if missing:
            raise ValueError(f"validation_losses has no loss for task {missing[0]!r}; give one for every task")
        reaches, _ = explore(ordered, set(map(id, parameters)), no_cut)
        found = gather(ordered, reaches, parameters=parameters, masks=[None] * len(ordered), overlap=True)
        with exact(found.values):
            return total([cross_products(found, batch) for batch in batches])

    if not callable(validation):
        return products(validation)
    with exact(batches[-1].values):
        ahead = [steps_ahead(batch, multipliers) for batch in batches]
    moves = [move for targets, steps in ahead for move in zip(targets, steps, strict=True)]
    with moved([target for target, _ in moves], [step for _, step in moves], module):
        with torch.enable_grad():
            losses = validation()
        return products(losses)


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
