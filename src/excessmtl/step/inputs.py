"""Checking what a training loop passes in, before anything is touched: one clear sentence per mistake."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from excessmtl.distributed.processes import no_reduction
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.places import Probe
from excessmtl.graph.representation import given, noted_by, tensors_in
from excessmtl.graph.shared import Shared
from excessmtl.losses import loss_matrix
from excessmtl.methods.base import Rule
from excessmtl.tensors import flags, parameters_below

if TYPE_CHECKING:
    from excessmtl.balancer import Balancer


def checked(
    balancer: "Balancer",
    losses: Any,
    at: Any,
    *,
    mask: Any,
    scaler: Any,
    accumulate: bool,
    extras: Mapping[str, Any],
) -> StepInputs:
    """The arguments of a step, checked and in task order, with what the rule asks for."""
    rule, tasks = balancer.rule, balancer.tasks
    losses, mask = by_task(losses, mask, tasks)
    ordered = ordered_losses(losses, tasks)
    device = next(loss.device for loss in ordered if loss is not None)
    if balancer.weights.device != device:
        balancer.to(device)
    scaling = scaler is not None and scaler.is_enabled()
    z = None if at is None else representation(at, tasks)
    shared = balancer._shared
    if shared.copies is not None:
        shared.resolve()
    by_id = {id(parameter): parameter for parameter in shared.loose} | parameters_below(shared.module)
    parameters = list(by_id.values())
    distributed = dist.is_available() and dist.is_initialized()
    return StepInputs(
        tasks=tasks,
        losses=ordered,
        masks=label_masks(mask, tasks),
        at=z,
        finder=partial(noted_by, shared.called) if z is None else partial(given, z),
        scale=scaler.scale(torch.ones((), device=device)) if scaling else None,
        accumulate=accumulate,
        extras=checked_extras(rule, extras, accumulate, tasks, device) if extras else {},
        probe=rule.probe if balancer._estimating else Probe.LOSSES,
        per_sample=rule.per_sample,
        shared=shared,
        all_parameters=parameters,
        shared_ids=by_id.keys(),
        parameters=[parameter for parameter in parameters if parameter.requires_grad],
        reduction=balancer._reduction if distributed else no_reduction,
        distributed=distributed,
    )


def task_names(tasks: Any) -> tuple[str, ...]:
    """The task names as a tuple, checked."""
    if isinstance(tasks, str) or not isinstance(tasks, Iterable):
        raise ValueError(f"tasks must be a list of task names, found {tasks!r}; pass e.g. tasks=['a', 'b']")
    names = tuple(tasks)
    if not names:
        raise ValueError("tasks is empty; name at least one task")
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"tasks must be non-empty strings, found {name!r}; name every task")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"tasks has {twice} more than once; give every task a name of its own")
    return names


def by_task(losses: Any, mask: Any, tasks: Sequence[str]) -> tuple[Any, Any]:
    """Losses and masks per task, where a matrix [batch, tasks, ...] was given; other losses as they are."""
    is_matrix = isinstance(losses, Tensor) and losses.ndim >= 2
    return loss_matrix.split(losses, mask, tasks) if is_matrix else (losses, mask)


def ordered_losses(
    losses: Any, tasks: Sequence[str], argument: str = "losses", graph: bool = True
) -> list[Tensor | None]:
    """The losses in task order, None where a task has no label in this batch. `graph`: each must have one behind it."""
    if not isinstance(losses, Mapping):
        given = type(losses).__name__
        matrix = "" if argument == "validation_losses" else f", or a matrix [batch, {len(tasks)} tasks]"
        raise ValueError(f"{argument} must be a dict from task name to scalar tensor{matrix}, found {given}")
    _known(argument, losses, tasks)
    if graph and torch.is_inference_mode_enabled():
        raise ValueError(
            f"{argument} cannot be trained on under torch.inference_mode(), where autograd does nothing; leave that "
            "mode before the forward, or call balancer.eval() before balancer(losses) to evaluate"
        )
    ordered = [losses.get(task) for task in tasks]
    if not any(loss is not None for loss in ordered):
        raise ValueError(f"{argument} has no task in it; pass the loss of at least one of {list(tasks)}")
    for task, loss in zip(tasks, ordered, strict=True):
        if loss is None:
            continue
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise ValueError(
                f"{argument}[{task!r}] must be a scalar tensor, found {_describe(loss)}; reduce it (e.g. .mean())"
            )
        if loss.is_complex():
            raise ValueError(f"{argument}[{task!r}] must be real, found {_describe(loss)}; take e.g. its .abs()")
        if graph and loss.grad_fn is None:
            raise ValueError(
                f"{argument}[{task!r}] has no graph behind it (detached, or under no_grad); compute it from the "
                "model's output, or pass None if the task has no label in this batch; to evaluate, call "
                "balancer.eval() before balancer(losses)"
            )
    return ordered


def loss_values(losses: Any, tasks: Sequence[str]) -> tuple[Tensor, Tensor]:
    """[m] the losses as numbers, and whether each was given and is finite; zero where not."""
    ordered = ordered_losses(losses, tasks, graph=False)
    zero = torch.zeros_like(next(loss for loss in ordered if loss is not None).detach().reshape(()))
    values = torch.stack([zero if loss is None else loss.detach().reshape(()) for loss in ordered]).float()
    ok = flags(tuple([loss is not None for loss in ordered]), values.device) & values.isfinite()
    return torch.where(ok, values, 0), ok


def representation(at: Any, tasks: Sequence[str]) -> list[Tensor]:
    """The tensors of `at=`: a tensor, a tuple, or a dict from task name to either."""
    if isinstance(at, Mapping):
        _known("at", at, tasks)
    tensors = list({id(tensor): tensor for tensor in tensors_in(at)}.values())
    if not tensors:
        raise ValueError(f"at must be a tensor, a tuple of tensors or a dict from task to them, found {_describe(at)}")
    for tensor in tensors:
        if not tensor.requires_grad:
            raise ValueError(
                f"at has a tensor of shape {tuple(tensor.shape)} that needs no gradient; pass the representation "
                "as the trunk returned it, not detached (checkpoint(use_reentrant=True) detaches it where its inputs "
                "need no gradient: pass use_reentrant=False)"
            )
    return tensors


def label_masks(mask: Any, tasks: Sequence[str]) -> list[Tensor | None]:
    """The masks in task order."""
    if mask is None:
        return [None] * len(tasks)
    if not isinstance(mask, Mapping):
        raise ValueError(f"mask must be a dict from task name to a bool tensor, found {type(mask).__name__}")
    _known("mask", mask, tasks)
    for task, value in mask.items():
        if value is not None and not (isinstance(value, Tensor) and value.dtype == torch.bool and value.ndim == 1):
            raise ValueError(f"mask[{task!r}] must be a bool tensor over the batch, found {_describe(value)}")
    return [mask.get(task) for task in tasks]


def metric_values(metrics: Any, tasks: Sequence[str], device: torch.device) -> Tensor:
    """[m] indicators, NaN where none was given."""
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics must be a dict from task name to a number, found {type(metrics).__name__}")
    _known("metrics", metrics, tasks)
    for task, value in metrics.items():
        if isinstance(value, int | float) and not 0 <= value <= 1:
            raise ValueError(f"metrics[{task!r}] must be between 0 and 1, found {value}; give a share, not percent")
    values = [torch.as_tensor(metrics.get(task, torch.nan), dtype=torch.float32) for task in tasks]
    return torch.stack([value.to(device, non_blocking=True).reshape(()) for value in values])


def _known(argument: str, mapping: Mapping[Any, Any], tasks: Sequence[str]) -> None:
    if not set(mapping).issubset(tasks):
        unknown = next(name for name in mapping if name not in tasks)
        raise ValueError(f"{argument} names unknown task {unknown!r}; the tasks are {list(tasks)}")


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and type {value.dtype}"
    return f"{type(value).__name__} {value!r}"[:80]


def validation_losses(losses: Any, tasks: Sequence[str]) -> list[Tensor | None]:
    """Validation losses in task order; there must be one for every task."""
    ordered = ordered_losses(losses, tasks, "validation_losses")
    for task, loss in zip(tasks, ordered, strict=True):
        if loss is None:
            raise ValueError(f"validation_losses has no loss for task {task!r}; give one for every task")
    return ordered


def check_options(rule: Rule, heads: Any, every: Any, scale: Any, layer: Any) -> None:
    """A ValueError for options that a balancer cannot have, or that its rule does not use."""
    if heads not in (None, "weighted", "unweighted"):
        raise ValueError(f"heads must be 'weighted' or 'unweighted', found {heads!r}")
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a whole number of steps, at least 1, found {every!r}")
    if every > 1 and (rule.gated or rule.directs):
        raise ValueError(f"every must be 1 for {rule.name!r}, found {every}: its multipliers fit one batch only")
    if scale not in ("sum", "mean") and not (_is_number(scale) and 0 < scale < float("inf")):
        raise ValueError(f"scale must be 'sum', 'mean' or a positive number, found {scale!r}")
    if layer is not None and not rule.probe.at_layer:
        raise ValueError(f"layer is not used by {rule.name!r}; leave it out")


def floors(rule: Rule, protect: Any, tasks: Sequence[str]) -> tuple[dict[str, float], tuple[float, ...] | None]:
    """`protect=` by task, and as one floor per task (None where there is none), both in task order."""
    if protect is None or protect == {}:
        return {}, None
    if not isinstance(protect, Mapping):
        raise ValueError(f"protect must be a dict from task name to a share of the weight, found {_describe(protect)}")
    if rule.gated or rule.directs:
        raise ValueError(f"protect is not used by {rule.name!r}, which has no weight per task; leave it out")
    _known("protect", protect, tasks)
    for task, share in protect.items():
        if not _is_number(share) or not 0 < share < 1:
            raise ValueError(f"protect[{task!r}] must be a share of the weight between 0 and 1, found {share!r}")
    ordered = {task: float(protect[task]) for task in tasks if task in protect}
    if not sum(ordered.values()) < 1:
        raise ValueError(
            f"protect has shares that sum to {sum(ordered.values()):g}, which leaves nothing to divide by the method; "
            "keep the sum below 1"
        )
    return ordered, tuple(ordered.get(task, 0.0) for task in tasks)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_real(rule: Rule, shared: Shared) -> None:
    """A ValueError where the rule looks at the gradients of complex parameters."""
    if any(parameter.is_complex() for parameter in rule.probe.parameters(shared)):
        raise ValueError(
            f"{rule.name!r} looks at the gradients of shared parameters, and some of these are complex; keep real "
            "and imaginary parts as parameters of their own, or take a method that looks at the representation or "
            "at the losses"
        )


def checked_extras(
    rule: Rule, extras: Mapping[str, Any], accumulate: bool, tasks: Sequence[str], device: torch.device
) -> dict[str, Any]:
    """Further inputs of a step, by name; a ValueError for those that the rule does not read, or not now."""
    given = {name: value for name, value in extras.items() if value is not None}
    for name in given:
        if name not in rule.uses:
            raise ValueError(f"{name} is not used by {rule.name!r}; leave it out")
        if accumulate and not rule.gated:
            raise ValueError(f"{name} is used with the last micro-batch only; leave it out with accumulate=True")
    if "metrics" in given:
        given["metrics"] = metric_values(given["metrics"], tasks, device)
    return given
