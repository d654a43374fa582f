"""Modules sharded by `torch.distributed.fsdp.fully_shard`, and what they refuse.

`gradients/second_backward.py` gives them their gradients.
"""

import sys
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn


def in_use() -> bool:
    """Whether a module of this process has been sharded by `fully_shard`."""
    package = _imported("torch.distributed.fsdp")
    return package is not None and _has_modules(package.FSDPModule)


def _imported(package: str) -> Any:
    """The package, if anybody can have sharded parameters with it: whoever does has imported it."""
    return sys.modules.get(package) if dist.is_available() and dist.is_initialized() else None


def _has_modules(kind: type[Any]) -> bool:
    """Whether modules are of a class derived from this one: `fully_shard` derives one for every class it meets."""
    return any(issubclass(derived, nn.Module) or _has_modules(derived) for derived in type.__subclasses__(kind))


def check_whole(method: str, shared: Iterable[Tensor]) -> None:
    """A ValueError if no process has the whole of the shared parameters, whose gradients the method looks at."""
    tensors = _imported("torch.distributed.tensor")
    sharded = tensors is not None and any(isinstance(parameter, tensors.DTensor) for parameter in shared)
    if sharded or in_use():
        raise ValueError(
            f"{method!r} looks at the gradients of shared parameters, and parameters are spread over processes "
            '(fully_shard, DTensor); pass probe="representation" where the method has that option, take a method that '
            'looks at the representation or at the losses (the default "excess", "uniform", ...), or use '
            "DistributedDataParallel"
        )


def is_flat(leaf: Tensor) -> bool:
    """Whether a leaf belongs to a module wrapped in `FullyShardedDataParallel`, the older form of FSDP."""
    package = _imported("torch.distributed.fsdp")
    return package is not None and isinstance(leaf, package.FlatParameter)
