"""Lightning Fabric: `backward(fabric, balancer, losses)` in place of `fabric.backward(sum(losses.values()))`."""

from typing import Any

from lightning.fabric import Fabric
from torch import Tensor

from excessmtl.balancer import At, Balancer
from excessmtl.graph.inputs import Losses
from excessmtl.integrations.scalar import as_loss, step_taken
from excessmtl.step.result import Step


def backward(fabric: Fabric, balancer: Balancer, losses: Losses | Tensor, at: At | None = None, **inputs: Any) -> Step:
    """The balancer's step inside of `fabric.backward`, in every precision of Fabric, with its scaler where it has one.

    With micro-batches pass `accumulate=True` for all but the last, losses divided by their number as usual, and
    `fabric.no_backward_sync(model, enabled=...)` as usual.
    """
    scaler = getattr(fabric.strategy.precision, "scaler", None)
    scalar = as_loss(balancer, losses, at, multiplied=scaler is not None, **inputs)
    if not scalar.requires_grad:
        raise ValueError("the balancer is in evaluation mode, or gradients are off; call balancer.train() to train")
    fabric.backward(scalar)
    return step_taken(balancer)
