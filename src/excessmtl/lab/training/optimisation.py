"""Optimisers and learning-rate schedules by name."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from excessmtl.lab.runs.config import Resolved

_CLASSES: dict[str, type[Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def make_optimiser(config: Resolved, parameters: Iterable[nn.Parameter], device: torch.device) -> Optimizer:
    """The optimiser of a run. On CUDA it works in one kernel, and Adam counts its steps on the device."""
    given: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if device.type == "cuda":
        given |= {"fused": True, **({} if config.optimiser == "sgd" else {"capturable": True})}
    own = dict(config.optimiser_options)
    taken = next((name for name in own if name in given), None)
    if taken is not None:
        raise ValueError(f"optimiser_options must not have {taken!r}; the run sets it (learning_rate, weight_decay)")
    try:
        return _CLASSES[config.optimiser](parameters, **given, **own)
    except (TypeError, ValueError) as error:
        raise ValueError(f"optimiser_options {own} do not fit {config.optimiser!r}: {error}") from error


def learning_rate(config: Resolved, step: int, steps: int) -> float:
    """The learning rate of the step with this number, of `steps` in all.

    It rises linearly over the warm-up, so that the last step of it has the full rate; the cosine then falls from
    there to zero just after the last step.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
