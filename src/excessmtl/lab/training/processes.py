"""Devices and processes: Fabric, replicas (DDP) or divided parameters (FSDP), and what they have to agree on."""

import os
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.model import MultiTaskModel, Network, SingleTaskModels


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


def parallel(network: Network, strategy: str, fabric: Fabric) -> nn.Module:
    """What is called in training: the network itself, a replica that averages gradients, or the divided network."""
    if fabric.world_size == 1:
        return network
    if strategy == "fsdp":
        assert isinstance(network, MultiTaskModel | SingleTaskModels)
        parts = (
            [network.trunk, *network.heads.values()]
            if isinstance(network, MultiTaskModel)
            else [*network.models.values()]
        )
        for part in [*parts, network]:
            if any(True for _ in part.parameters()):
                fully_shard(part)
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


def state_of(network: nn.Module, optimiser: Optimizer, divided: bool) -> dict[str, Any]:
    """The complete states of network and optimiser, also where the processes hold parts of them."""
    if not divided:
        return {"model": network.state_dict(), "optimiser": optimiser.state_dict()}
    # Imported where it is used: it takes a second, and most runs have one process.
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model, optimiser_state = get_state_dict(network, optimiser, options=options)
    return {"model": model, "optimiser": optimiser_state}


def load_state(network: nn.Module, optimiser: Optimizer, state: dict[str, Any], divided: bool) -> None:
    """The inverse of `state_of`."""
    if not divided:
        network.load_state_dict(state["model"])
        options = [set(group) for group in optimiser.param_groups]
        optimiser.load_state_dict(state["optimiser"])
        _check_optimiser(optimiser, options)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    full, model = StateDictOptions(full_state_dict=True, cpu_offload=True), state["model"]
    set_state_dict(network, optimiser, model_state_dict=model, optim_state_dict=state["optimiser"], options=full)


def _check_optimiser(optimiser: Optimizer, options: list[set[str]]) -> None:
    """Refuses a loaded state that the next step would fail on; `options`: the names of those of each group."""
    if any(not names <= set(group) for names, group in zip(options, optimiser.param_groups, strict=True)):
        raise ValueError("optimiser lacks options of its parameters")
    parameter = next(iter(optimiser.state), None)
    if parameter is None:
        return
    probe = nn.Parameter(torch.zeros_like(parameter.flatten()[:1]))
    probe.grad = torch.zeros_like(probe)
    fresh = type(optimiser)([probe], **optimiser.defaults)
    fresh.step()
    for parameter, own in optimiser.state.items():
        for name, value in fresh.state[probe].items():
            shape = None if value is None else parameter.shape if value.shape == probe.shape else value.shape
            if getattr(own.get(name), "shape", None) != shape:
                raise ValueError(f"optimiser has no {name} of the shape of its parameter")
