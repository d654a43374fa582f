"""Devices and processes: Fabric, replicas (DDP), and what they have to agree on."""

import os

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from excessmtl.lab.runs.config import RunConfig


def make_fabric(config: RunConfig) -> Fabric:
    """Fabric on the configured devices; a device or precision that is not to be had is refused."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(config.device, True):
        others = ["auto", "cpu", *(name for name, here in available.items() if here)]
        raise ValueError(f"device {config.device!r} is not available on this machine; choose one of {others}")
    half = config.precision == "16-mixed"
    if half and not (available["cuda"] and config.device in ("auto", "cuda")):
        raise ValueError("precision '16-mixed' needs a CUDA device; choose 'bf16-mixed' or '32-true'")
    accelerator = "cuda" if half else config.device
    on_cuda = accelerator == "cuda" or (accelerator == "auto" and available["cuda"])
    if on_cuda and config.devices > torch.cuda.device_count():
        raise ValueError(f"devices is {config.devices}, but this machine has {torch.cuda.device_count()}")
    started = int(os.environ.get("LOCAL_WORLD_SIZE", config.devices))
    if started != config.devices:
        raise ValueError(f"devices is {config.devices}, but torchrun has started {started} processes; make them equal")
    several = {"strategy": "ddp"} if config.devices > 1 else {}
    return Fabric(accelerator=accelerator, devices=config.devices, precision=config.precision, **several)  # type: ignore[arg-type]


def is_first_process() -> bool:
    """Whether this process writes; known before the processes have met."""
    return not any(int(os.environ.get(name, 0)) for name in ("RANK", "LOCAL_RANK"))


def parallel(network: nn.Module, fabric: Fabric) -> nn.Module:
    """What is called in training: the network itself, or with several processes a replica that averages gradients."""
    if fabric.world_size == 1:
        return network
    own = [fabric.device.index] if fabric.device.type == "cuda" else None
    return DistributedDataParallel(network, device_ids=own)


def mean_over_processes(log: Tensor) -> Tensor:
    """Numbers that every process has of its own share of the batches; NaN counts nowhere."""
    if not (dist.is_available() and dist.is_initialized()):
        return log
    both = torch.stack([torch.where(log.isnan(), 0, log), (~log.isnan()).to(log)])
    dist.all_reduce(both)
    return both[0] / both[1]  # 0 / 0 where no process has a number: NaN again
