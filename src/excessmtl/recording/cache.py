"""Recordings by what their batches look like: those that look alike share one."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from excessmtl.recording.recording import Recording
from excessmtl.recording.static_inputs import StaticInputs

R = TypeVar("R")
MOST = 4
"""A whole batch, the last of an epoch, and a few with labels missing."""


def settings() -> Hashable:
    """Settings of torch that decide which kernels an operation launches."""
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    # torch 2.8 and older have one setting for all backends.
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None) or torch.get_float32_matmul_precision()
    return autocast, precision, torch.are_deterministic_algorithms_enabled()


@dataclass(frozen=True)
class RecordedStep:
    """A recorded step, and what it was made with."""

    recording: Recording[Tensor]
    inputs: StaticInputs
    gradients: dict[int, Tensor | None]
    """What every replay leaves in `.grad`, by the id of the leaf."""
    leaves: list[tuple[Tensor, Tensor, bool]]
    """Each leaf, its memory (kept: nothing else can then have its address), and whether it requires a gradient."""
    modules: list[tuple[nn.Module, bool]]
    """The shared modules, and whether they were in training mode."""

    def fits(self) -> bool:
        """Whether parameters and modules are as they were: same memory, same `requires_grad`, same mode."""
        return all(
            leaf.data_ptr() == memory.data_ptr() and leaf.requires_grad is wanted
            for leaf, memory, wanted in self.leaves
        ) and all(module.training is training for module, training in self.modules)


@dataclass(eq=False)
class Entry(Generic[R]):
    """Batches that one recording serves."""

    key: tuple[Any, ...]
    taken: int = 0
    """Steps so far."""
    recorded: R | None = None


class GraphCache(Generic[R]):
    """A few recordings, by what their batches look like; batches seen long ago and never recorded make room."""

    def __init__(self) -> None:
        self._latest_last: list[Entry[R]] = []

    @property
    def recordings(self) -> int:
        """How many there are."""
        return sum(entry.recorded is not None for entry in self._latest_last)

    def entry(self, key: tuple[Any, ...]) -> Entry[R] | None:
        """The entry with this key; None where all that there may be are recorded, and this is none of them."""
        entries = self._latest_last
        found = next((entry for entry in reversed(entries) if entry.key == key), None)
        if found is not None:
            entries.remove(found)
        elif len(entries) == MOST:
            dispensable = next((entry for entry in entries if entry.recorded is None), None)
            if dispensable is None:
                return None
            entries.remove(dispensable)
        entries.append(found or Entry(key))
        return entries[-1]
