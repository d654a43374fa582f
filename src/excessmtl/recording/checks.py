"""What a replay is made with and what its `compute` returns, checked: one clear sentence per mistake."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

Losses = Mapping[str, Tensor | None]
_OPTIONS = frozenset({"at", "mask"})
"""Of `balancer.backward`; those left out hold numbers from the host, which a recording would repeat."""


def check_parts(balancer: Any, compute: Any, optimizer: Any) -> None:
    """A ValueError for parts that a replay cannot be made of."""
    if not hasattr(balancer, "backward") or not hasattr(balancer, "rule"):
        found = type(balancer).__name__
        raise ValueError(f"balancer must be a Balancer, found {found}; make one with excessmtl.create")
    if not callable(compute):
        raise ValueError(f"compute must be a function from a batch to losses, found {type(compute).__name__}")
    if optimizer is not None and not (hasattr(optimizer, "step") and hasattr(optimizer, "param_groups")):
        raise ValueError(f"optimizer must be a torch optimiser, found {type(optimizer).__name__}; or leave it out")


def losses_and_options(found: Any) -> tuple[Losses | Tensor, Mapping[str, Any]]:
    """What `compute` returned: losses, and arguments of `backward`."""
    losses, options = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
    is_matrix = isinstance(losses, Tensor) and losses.ndim >= 2
    if not (isinstance(losses, Mapping) or is_matrix) or not isinstance(options, Mapping):
        kinds = [type(one).__name__ for one in (found if isinstance(found, tuple) else (found,))]
        raise ValueError(
            "compute must return a dict from task to loss, a matrix of losses, or (losses, {'at': z}), found "
            f"{', '.join(kinds)}"
        )
    if unknown := set(options) - _OPTIONS:
        raise ValueError(f"compute returned the option {min(unknown)!r}; it may return {sorted(_OPTIONS)}")
    return losses, options
