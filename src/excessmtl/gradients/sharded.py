"""Parameters that `torch.distributed.fsdp.fully_shard` has spread over processes: recognising them, refusing the rest.

FSDP puts the whole parameters into the graph while a module works and takes them away afterwards, so a leaf of the
graph does not tell whether it is one of them. What can be told, and for nothing, is whether FSDP is in use at all.
"""

import sys
from collections.abc import Iterable

import torch.distributed as dist
from torch import Tensor, nn

from excessmtl.gradients.observation import Probe


def in_use() -> bool:
    """Whether a module of this process has been sharded by `fully_shard`."""
    if not (dist.is_available() and dist.is_initialized()):
        return False
    fsdp = sys.modules.get("torch.distributed.fsdp")  # whoever has sharded something has imported it
    return fsdp is not None and _has_modules(fsdp.FSDPModule)


def _has_modules(kind: type) -> bool:
    """Whether a kind of module has been derived from this class: `fully_shard` gives what it shards a class of its own."""
    return any(issubclass(derived, nn.Module) or _has_modules(derived) for derived in kind.__subclasses__())


def check_probe(probe: Probe, method: str) -> None:
    """A ValueError if the method looks at gradients of shared parameters, of which a process has the whole no longer."""
    if probe in (Probe.SHARED, Probe.LAYER):
        raise ValueError(
            f"{method!r} looks at the gradients of shared parameters, and a module of this process is sharded by "
            'fully_shard; pass probe="representation" where the method has it, take a method that looks at the '
            'representation or the losses alone ("excess" with its default estimator, "uniform", ...), or use '
            "DistributedDataParallel"
        )


def check_not_flat(leaves: Iterable[Tensor]) -> None:
    """A ValueError if a module is wrapped in `FullyShardedDataParallel`, the older form."""
    if any(getattr(leaf, "_is_flat_param", False) for leaf in leaves):
        raise ValueError(
            "the model is wrapped in FullyShardedDataParallel, under which gradients would not be averaged over "
            "processes; shard it by torch.distributed.fsdp.fully_shard, or use DistributedDataParallel"
        )
