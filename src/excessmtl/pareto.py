"""Pareto dominance, fronts and stationarity: how far a model is from a compromise that cannot be improved.

Definitions 2.1 to 2.3 of He et al., ICML 2024, https://arxiv.org/abs/2402.02009. Losses throughout: smaller is better.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from excessmtl.distributed import fsdp
from excessmtl.graph.shared import parameters_in
from excessmtl.solvers.min_norm import min_norm
from excessmtl.step.inputs import ordered_losses


def pareto_stationarity(
    losses: Mapping[str, Tensor] | Sequence[Tensor], shared: nn.Module | Iterable[nn.Module | Tensor]
) -> tuple[Tensor, Tensor]:
    """The norm of the shortest convex combination of the task gradients, and its weights in the order of `losses`.

    The norm is zero where and only where the point is Pareto stationary: no step improves every loss at first order.
    It has the unit of a gradient, so compare it with the norm of a single task's. Nothing is written to `.grad`, and
    the graph stays for a `backward` of yours. One backward and one copy of the shared parameters per task.
    """
    gradients = _gradients(losses, shared)
    weights = min_norm(gradients @ gradients.T, torch.ones(len(gradients), dtype=torch.bool, device=gradients.device))
    return (weights @ gradients).norm(), weights


def gradient_cosines(
    losses: Mapping[str, Tensor] | Sequence[Tensor], shared: nn.Module | Iterable[nn.Module | Tensor]
) -> Tensor:
    """[tasks, tasks] the cosines between the task gradients, in the order of `losses`: below zero, two tasks conflict.

    A step along one of two gradients with a negative cosine makes the other loss larger. A task without any gradient
    has NaN. Costs what `pareto_stationarity` costs.
    """
    gradients = _gradients(losses, shared)
    norms = gradients.norm(dim=1, keepdim=True)
    products: Tensor = norms * norms.T
    return (gradients @ gradients.T) / products.where(products > 0, torch.nan)


def _gradients(losses: Any, shared: nn.Module | Iterable[nn.Module | Tensor]) -> Tensor:
    """[tasks, parameters] in double precision."""
    named = _named(losses)
    ordered = ordered_losses(named, list(named))
    parameters = [parameter for parameter in parameters_in(shared) if parameter.requires_grad]
    if not parameters:
        raise ValueError("shared has no parameter that needs a gradient; unfreeze it or pass another part of the model")
    if fsdp.in_use():
        raise ValueError(
            "fully_shard has sharded modules of this process, and the gradients of all shared parameters are needed "
            "whole; measure a copy of the model in a process that shards nothing"
        )
    rows = []
    for task, loss in zip(named, ordered, strict=True):
        if loss is None:
            raise ValueError(f"losses[{task!r}] is None; leave the task out, or pass its loss")
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        if all(gradient is None for gradient in gradients):
            raise ValueError(f"losses[{task!r}] does not reach shared; pass the parameters that all tasks share")
        # Double precision: at a stationary point the combination is what is left after large numbers cancel.
        row = torch.cat(
            [
                torch.zeros_like(p, dtype=torch.float64).flatten() if g is None else g.detach().double().flatten()
                for p, g in zip(parameters, gradients, strict=True)
            ]
        )
        if not row.isfinite().all():
            raise ValueError(f"the gradient of losses[{task!r}] is not finite; leave the task out of this measurement")
        rows.append(row)
    return torch.stack(rows)


def dominates(a: Any, b: Any) -> bool:
    """Whether losses `a` Pareto-dominate losses `b`: nowhere larger, and smaller somewhere."""
    first, second = _numbers("a", a, 1), _numbers("b", b, 1)
    if first.shape != second.shape:
        raise ValueError(f"a has {len(first)} losses and b has {len(second)}; compare points with the same tasks")
    return bool((first <= second).all() and (first < second).any())


def pareto_front(points: Any) -> NDArray[np.bool_]:
    """Which rows of `points` [n, m] no other row dominates: a boolean mask. Equal rows do not dominate each other."""
    values = _numbers("points", points, 2)
    mask = np.zeros(len(values), dtype=bool)
    front = np.empty_like(values)
    size = 0
    # A point that dominates another comes before it in lexicographic order, so one pass against the front so far does.
    for index in np.lexsort(values.T[::-1]):
        point, kept = values[index], front[:size]
        if not ((kept <= point).all(1) & (kept < point).any(1)).any():
            mask[index], front[size] = True, point
            size += 1
    return mask


def hypervolume(points: Any, reference: Any) -> float:
    """The volume that `points` [n, m] dominate below `reference` [m], for two or three losses: larger is better.

    Points that are not below the reference in every loss add nothing.
    """
    values, corner = _numbers("points", points, 2), _numbers("reference", reference, 1)
    if values.shape[1] != len(corner):
        raise ValueError(f"points have {values.shape[1]} losses and reference has {len(corner)}; give one for each")
    if len(corner) not in (2, 3):
        raise ValueError(f"hypervolume is for two or three losses, found {len(corner)}")
    inside = values[(values < corner).all(1)]
    if len(corner) == 2:
        return _area(inside, corner)
    # Slices along the third loss: between two levels, all points below the lower one count.
    levels = np.unique(inside[:, 2])
    heights = np.diff(np.append(levels, corner[2]))
    areas = [_area(inside[inside[:, 2] <= level, :2], corner[:2]) for level in levels]
    return float(np.dot(areas, heights)) if len(levels) else 0.0


def _area(points: NDArray[np.float64], corner: NDArray[np.float64]) -> float:
    """Two losses: a staircase, widest step first."""
    front = points[pareto_front(points)] if len(points) else points
    front = np.unique(front, axis=0)
    ceilings = np.append(corner[1], front[:-1, 1])
    return float(((corner[0] - front[:, 0]) * (ceilings - front[:, 1])).sum()) if len(front) else 0.0


def _named(losses: Any) -> Mapping[str, Any]:
    """Losses by name; those of a list are named by their position."""
    if isinstance(losses, Mapping):
        named = dict(losses)
    elif isinstance(losses, Sequence):
        named = {str(position): loss for position, loss in enumerate(losses)}
    else:
        raise ValueError(f"losses must be a dict or a list of scalar tensors, found {type(losses).__name__}")
    if not named:
        raise ValueError("losses is empty; pass the loss of at least one task")
    return named


def _numbers(argument: str, values: Any, dimensions: int) -> NDArray[np.float64]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    elif isinstance(values, Sequence) and any(isinstance(value, Tensor) for value in values):
        values = [value.detach().cpu().double().numpy() if isinstance(value, Tensor) else value for value in values]
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        shape = "one loss per task" if dimensions == 1 else "points by tasks"
        raise ValueError(f"{argument} must have {dimensions} dimension(s) ({shape}), found shape {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"{argument} holds a value that is not a number; leave that point out")
    return array
