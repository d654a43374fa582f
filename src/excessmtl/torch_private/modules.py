"""Modules and what wraps them: DistributedDataParallel, the compiler; CUDA graphs."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import Node

from excessmtl.torch_private.nodes import compiled_among

F = TypeVar("F", bound=Callable[..., Any])
# Which DistributedDataParallel runs a module, and whether it is inside `join()`.
# https://github.com/pytorch/pytorch/blob/main/torch/nn/parallel/distributed.py
# Without either: `join()` is not refused.
ACTIVE_DDP, JOIN = "_active_ddp_module", "_join_config"
# What `torch.compile(module)` returns holds the module. https://github.com/pytorch/pytorch/issues/101107
# Without it: pass the module itself as shared, not the compiled one.
ORIGINAL = "_orig_mod"
# `torch.compiler.disable` imports the compiler, which takes two seconds; this waits until the function is called.
# https://github.com/pytorch/pytorch/blob/main/torch/_compile.py
# Without it: torch.compiler.disable, and a slow import of this library.
_disable: Callable[..., Any] = getattr(torch, "_disable_dynamo", None) or torch.compiler.disable
# Ends the use of a pool of memory by a capture that failed: torch goes on allocating there.
# https://github.com/pytorch/pytorch/blob/main/torch/csrc/cuda/Module.cpp
# Without it: memory that is allocated after such a failure stays in the pool.
END_OF_POOL = "_cuda_endAllocateToPool"
# Frees what cuBLAS holds for streams that are not used any more.
# https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces
# Without it: it counts as memory of whoever is measured next.
CLEAR_WORKSPACES = "_cuda_clearCublasWorkspaces"


_data_parallel: "weakref.WeakKeyDictionary[nn.Module, Any]" = weakref.WeakKeyDictionary()
"""Modules that DistributedDataParallel has run, and a reference to it."""


def note_data_parallel(module: nn.Module) -> None:
    """Called in a module's forward: remember the DistributedDataParallel that runs it, if one does."""
    if dist.is_available() and dist.is_initialized():
        active = getattr(nn.parallel.DistributedDataParallel, ACTIVE_DDP, None)
        if active is not None:
            _data_parallel[module] = weakref.ref(active)


def inside_join(module: nn.Module | None) -> bool:
    """Whether the module is run by DistributedDataParallel inside its `join()`."""
    reference = None if module is None else _data_parallel.get(module)
    return bool(reference and getattr(getattr(reference(), JOIN, None), "enable", False))


def original_of(module: nn.Module) -> nn.Module:
    """The module itself where it is one that `torch.compile` returned."""
    while isinstance(original := getattr(module, ORIGINAL, None), nn.Module):
        module = original
    return module


def outside_compiled_code(function: F) -> F:
    """A decorator: compiled code is interrupted for a call of the function, which runs as it is."""
    disabled: F = _disable(function)
    return disabled


@contextmanager
def repeatable(nodes: Iterable[Node]) -> Iterator[None]:
    """Inside, compiled backward functions among these nodes may run any number of times, the graph being retained.

    The buffers that one of them would overwrite are copied for every run. Where that does not work, torch refuses the
    second run with a sentence that says what to set. https://github.com/pytorch/pytorch/pull/130580
    """
    config = getattr(getattr(torch, "_functorch", None), "config", None)
    compiled = [] if config is None else compiled_among(nodes)
    if config is not None and compiled and all(map(_copy_donated, compiled)):
        with config.patch(donated_buffer=False):  # or torch refuses the second run all the same
            yield
    else:
        yield


def _copy_donated(node: Any) -> bool:
    """Let the compiled backward function of this node work on copies of what it would overwrite; False: it cannot.

    There is nothing to copy where its first run retained the graph: it was then compiled to overwrite nothing.
    """
    try:
        compiled = type(node)._forward_cls.metadata
        donated = [place - compiled.num_symints_saved_for_bw for place in compiled.bw_donated_idxs or ()]
        saved = [node._raw_saved_tensors[place] for place in donated]
    except (AttributeError, IndexError):
        return False
    for tensor in saved:
        with suppress(RuntimeError):  # done already
            tensor.register_hooks(_same, torch.clone)
    return True


def _same(tensor: Tensor) -> Tensor:
    return tensor


def end_allocation_to_pool(device: torch.device, pool: Any) -> None:
    """Let a capture that failed no longer receive the memory that is allocated on the device."""
    end = getattr(torch._C, END_OF_POOL, None)
    if end is not None:
        end(device.index, pool)


def clear_cublas_workspaces() -> None:
    """Free what cuBLAS holds for every stream that has been used."""
    clear = getattr(torch._C, CLEAR_WORKSPACES, None)
    if clear is not None:
        clear()
