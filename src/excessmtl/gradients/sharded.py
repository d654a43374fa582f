"""Parameters that `torch.distributed.fsdp.fully_shard` has spread over processes: recognising them, refusing the rest.

FSDP puts the whole parameters into the graph while a module works and takes them away afterwards, so a leaf of the
graph does not tell whether it is one of them. What can be told, and for nothing, is whether FSDP is in use at all.
"""

import sys
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from excessmtl.gradients.graph import leaves_of


def in_use() -> bool:
    """Whether a module of this process has been sharded by `fully_shard`."""
    fsdp = _imported("torch.distributed.fsdp")
    return fsdp is not None and _has_modules(fsdp.FSDPModule)


def _imported(package: str) -> Any:
    """The package, if anybody can have spread parameters with it: whoever does has imported it."""
    return sys.modules.get(package) if dist.is_available() and dist.is_initialized() else None


def _has_modules(kind: type[Any]) -> bool:
    """Whether modules are of a class derived from this one: `fully_shard` derives one for every class it meets."""
    return any(issubclass(derived, nn.Module) or _has_modules(derived) for derived in type.__subclasses__(kind))


def check_whole(method: str, shared: Iterable[Tensor]) -> None:
    """A ValueError if no process has the whole of the shared parameters, whose gradients the method looks at."""
    if in_use() or _any_spread(shared):
        raise ValueError(
            f"{method!r} looks at the gradients of shared parameters, and parameters are spread over processes "
            '(fully_shard, DTensor); pass probe="representation" where the method has that option, take a method that '
            'looks at the representation or at the losses (the default "excess", "uniform", ...), or use '
            "DistributedDataParallel"
        )


def _any_spread(parameters: Iterable[Tensor]) -> bool:
    """Whether one of them is a DTensor: tensor parallelism leaves these in the graph."""
    tensors = _imported("torch.distributed.tensor")
    return tensors is not None and any(isinstance(parameter, tensors.DTensor) for parameter in parameters)


def check_not_flat(losses: Iterable[Tensor | None]) -> None:
    """A ValueError if a loss was computed by a module wrapped in `FullyShardedDataParallel`, the older form of FSDP."""
    fsdp = _imported("torch.distributed.fsdp")
    if fsdp is not None and any(isinstance(leaf, fsdp.FlatParameter) for leaf in leaves_of(losses)):
        raise ValueError(
            "losses were computed by a module wrapped in FullyShardedDataParallel, which allows one walk through a "
            "model where two are needed; shard it by torch.distributed.fsdp.fully_shard, or use DistributedDataParallel"
        )
