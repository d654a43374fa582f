"""Adam on a small vector of learnable scales, as a function: state in, state out.

Kingma & Ba, ICLR 2015, https://arxiv.org/abs/1412.6980, Algorithm 1. Step counts are per entry, so that an entry whose
task took no part in a step is left exactly as it was. No weight decay: scales have no reason to be small.
"""

import torch
from torch import Tensor

State = dict[str, Tensor]
_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8
_LARGEST = 1e18
"""Gradients are cut here, where their squares still fit into single precision."""


def adam_state(size: int) -> State:
    """Before the first step."""
    return {f"adam_{name}": torch.zeros(size) for name in ("first", "second", "steps")}


def adam_step(value: Tensor, gradient: Tensor, state: State, ok: Tensor, step_size: float) -> tuple[Tensor, State]:
    """The moved value and the optimiser's new state; entries that are not ok keep theirs."""
    gradient = gradient.clamp(-_LARGEST, _LARGEST)
    first = _BETA1 * state["adam_first"] + (1 - _BETA1) * gradient
    second = _BETA2 * state["adam_second"] + (1 - _BETA2) * gradient.square()
    steps = state["adam_steps"] + 1
    direction = (first / (1 - _BETA1**steps)) / ((second / (1 - _BETA2**steps)).sqrt() + _EPS)
    new = {"adam_first": first, "adam_second": second, "adam_steps": steps}
    kept = {name: torch.where(ok, tensor, state[name]) for name, tensor in new.items()}
    return torch.where(ok, value - step_size * direction, value), kept
