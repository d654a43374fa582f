"""Accelerate: `backward(accelerator, balancer, losses)` in place of `accelerator.backward(sum(losses.values()))`."""

from typing import Any

from accelerate import Accelerator
from torch import Tensor

from excessmtl.balancer import At, Balancer
from excessmtl.graph.inputs import Losses
from excessmtl.integrations.scalar import as_loss, step_taken
from excessmtl.step.result import Step


def backward(
    accelerator: Accelerator, balancer: Balancer, losses: Losses | Tensor, at: At | None = None, **inputs: Any
) -> Step:
    """The balancer's step inside of `accelerator.backward`, with its scaler where it has one.

    Inside of `accelerator.accumulate(model)` the micro-batches of a step make one step of the balancer: pass the losses
    undivided, as to `accelerator.backward`. Call `accelerator.register_for_checkpointing(balancer)` once, and
    `accelerator.save_state()` holds its state.
    """
    scalar = as_loss(
        balancer,
        losses,
        at,
        accumulate=not accelerator.sync_gradients,
        micro_batches=accelerator.gradient_accumulation_steps,
        multiplied=accelerator.scaler is not None,
        **inputs,
    )
    if not scalar.requires_grad:
        raise ValueError("the balancer is in evaluation mode, or gradients are off; call balancer.train() to train")
    accelerator.backward(scalar)
    return step_taken(balancer)
