"""Checking what `BayesAgg` is given: heads, kinds, the representation, and labels with holes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl.bayes_agg.last_layer import KINDS, Kind, sizes

_MOST = 2**26
"""Numbers in the precision of one last layer; a step holds about ten tensors of this size."""


def kinds_of(heads: Mapping[str, Any], kinds: Any) -> tuple[Kind, ...]:
    """The kind of every task; a ValueError for heads or kinds that do not fit."""
    if not heads:
        raise ValueError("heads is empty; give the last layer of each task, by name")
    for task, head in heads.items():
        if not isinstance(head, nn.Linear):
            raise ValueError(f"heads[{task!r}] must be an nn.Linear on z, found {type(head).__name__}")
        if head.in_features != next(iter(heads.values())).in_features:
            raise ValueError(f"heads[{task!r}] has {head.in_features} inputs; all heads must take the same z")
    by_task = dict(kinds) if isinstance(kinds, Mapping) else dict.fromkeys(heads, kinds)
    if set(by_task) != set(heads):
        raise ValueError(f"kinds must name each task once; the tasks are {list(heads)}, found {list(by_task)}")
    for task, kind in by_task.items():
        if kind not in KINDS:
            raise ValueError(f"kinds[{task!r}] must be one of {list(KINDS)}, found {kind!r}")
        if kind == "classification" and heads[task].out_features < 2:
            raise ValueError(f'heads[{task!r}] has one output; its kind is "binary", or it needs one per class')
        _check_size(task, kind, heads[task])
    return tuple(by_task[task] for task in heads)


def _check_size(task: str, kind: Kind, head: nn.Linear) -> None:
    blocks, _, n = sizes(kind, head.out_features, head.in_features + (head.bias is not None))
    if blocks * n**2 > _MOST:
        raise ValueError(
            f"heads[{task!r}] has {head.out_features} outputs on {head.in_features} features, and for kind {kind!r} a "
            f"step would work with several tensors of {blocks} x {n} x {n} numbers, at most {_MOST:,} are allowed; put "
            "a narrower layer before the heads, or take a method of excessmtl.create"
        )


def labels(
    z: Any, targets: Any, heads: Mapping[str, nn.Linear], kinds: tuple[Kind, ...]
) -> dict[int, tuple[Tensor, Tensor]]:
    """Place of a task with labels -> these, with holes filled, and which samples have one."""
    width = next(iter(heads.values())).in_features
    if not isinstance(z, Tensor) or z.ndim != 2 or z.shape[1] != width:
        found = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"z must be a tensor [samples, {width} features], the input of the heads, found {found}")
    if not z.requires_grad:
        raise ValueError("z has no graph behind it; pass the output of the trunk, computed with gradients enabled")
    if not isinstance(targets, Mapping):
        raise ValueError(f"targets must be a dict from task to labels, found {type(targets).__name__}")
    unknown = [task for task in targets if task not in heads]
    if unknown:
        raise ValueError(f"targets names unknown task {unknown[0]!r}; the tasks are {list(heads)}")
    ready = {}
    for place, (task, head) in enumerate(heads.items()):
        if targets.get(task) is not None:
            ready[place] = _filled(task, kinds[place], targets[task], z, head.out_features)
    if not ready:
        raise ValueError(f"targets has no task in it; pass the labels of at least one of {list(heads)}")
    return ready


def _filled(task: str, kind: Kind, target: Any, z: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
    shape = (len(z),) if kind == "classification" else (len(z), outputs)
    allowed = (shape, (len(z),)) if outputs == 1 else (shape,)
    fits = isinstance(target, Tensor) and target.shape in allowed
    if not fits or target.is_floating_point() == (kind == "classification"):
        found = f"{target.dtype} {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        what = "whole numbers" if kind == "classification" else "floats"
        raise ValueError(f"targets[{task!r}] must be {what} of shape {shape} for kind {kind!r}, found {found}")
    target = target.to(z.device, non_blocking=True).reshape(shape)
    if kind == "classification":
        return target.clamp(min=0).long(), target >= 0
    known = target.isfinite()
    return torch.where(known, target, 0).to(torch.promote_types(z.dtype, torch.float32)), known.all(1)
