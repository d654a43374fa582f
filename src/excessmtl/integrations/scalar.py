"""A scalar for trainers that call `.backward()` themselves; that call is the balancer's step."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from excessmtl.balancer import At, Balancer
from excessmtl.graph.inputs import Losses
from excessmtl.step.result import Step
from excessmtl.step.run import weighted_losses


def balancer_of(value: Any) -> Balancer:
    """The balancer itself, or that of a `MultiTaskLoss`."""
    found = getattr(value, "balancer", value)
    if not isinstance(found, Balancer):
        name = type(value).__name__
        raise TypeError(f"balancer must be what excessmtl.create returns, or a MultiTaskLoss, found {name}")
    return found


def step_taken(value: Any) -> Step:
    """The step of a balancer that has just been taken."""
    step = balancer_of(value).last_step
    assert step is not None
    return step


def as_loss(
    balancer: Balancer,
    losses: Losses | Tensor,
    at: At | None = None,
    *,
    accumulate: bool = False,
    micro_batches: int = 1,
    multiplied: bool = True,
    mask: Mapping[str, Tensor] | Tensor | None = None,
    **inputs: Any,
) -> Tensor:
    """A scalar whose `.backward()` does what `balancer.backward(losses)` does, heads included.

    Its value is the sum of the losses with the weights last decided. What the trainer multiplies it by, as a
    `GradScaler` does, multiplies the gradients and not the statistics. Under `torch.no_grad()` and in evaluation mode
    nothing is learned. `balancer.last_step` has the step afterwards.

    `balancer(losses)` is a scalar too, but it takes the step at once, and its heads get the weighted loss. Take that
    one where the trainer looks for parameters in the graph of the scalar: this one has none.

    Args:
        balancer: whose step it is; of a `MultiTaskLoss` its balancer, as everywhere in these integrations.
        losses: as for `balancer.backward`; so are `at`, `mask` and further inputs.
        accumulate: True for all micro-batches of a step but the last.
        micro_batches: so many make up a step, and the trainer divides the scalar by that number.
        multiplied: False if the trainer multiplies by nothing else: a step without a scaler can do a little less.
    """
    balancer = balancer_of(balancer)
    with torch.no_grad():
        value = weighted_losses(balancer, losses, mask)
    if not (balancer.training and torch.is_grad_enabled()):
        return value
    if micro_batches < 1:
        raise ValueError(f"micro_batches must be at least 1, found {micro_batches}")
    if micro_batches > 1:
        losses = divided(losses, micro_batches)
    take_step = partial(balancer.backward, losses, at, mask=mask, accumulate=accumulate, **inputs)
    start = torch.zeros((), device=value.device, requires_grad=True)
    apply: Callable[..., Tensor] = _BackwardOf.apply
    return apply(start, value, take_step, float(micro_batches) if multiplied else None)


def divided(losses: Losses | Tensor, count: int) -> Losses | Tensor:
    """The share of one micro-batch of so many."""
    if isinstance(losses, Tensor):
        return losses / count
    return {task: None if loss is None else loss / count for task, loss in losses.items()}


class _BackwardOf(torch.autograd.Function):
    """A scalar whose backward calls a function."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, value: Tensor, take_step: Callable[..., Any], factor: float | None) -> Tensor:
        ctx.take_step, ctx.factor = take_step, factor
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        take_step, ctx.take_step = ctx.take_step, _taken
        with torch.enable_grad():  # validation losses may be computed in the step
            if ctx.factor is None:
                take_step()
            else:
                take_step(scaler=_Multiplied(outputs[0] * ctx.factor))
        return None, None, None, None


def _taken(**_: Any) -> None:
    raise ValueError("the step of this scalar has been taken; compute the losses again before the next backward")


class _Multiplied:
    """What the trainer has multiplied the scalar by, in the place of a GradScaler."""

    def __init__(self, factor: Tensor) -> None:
        self.factor = factor

    def is_enabled(self) -> bool:
        return True

    def scale(self, tensor: Tensor) -> Tensor:
        return tensor * self.factor.to(tensor)
