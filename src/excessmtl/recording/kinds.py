"""Kinds of batches: those that look alike share a recording; a few kinds have one."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from excessmtl.recording.graph import Recording
from excessmtl.recording.inputs import Places

R = TypeVar("R")
MOST = 4
"""A whole batch, the last of an epoch, and a few with labels missing."""


def settings() -> Hashable:
    """What torch has been told that decides which kernels an operation launches."""
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    precision = torch.backends.cuda.matmul.fp32_precision
    return autocast, precision, torch.are_deterministic_algorithms_enabled()


@dataclass(frozen=True)
class Recorded:
    """A recorded step, and what it was made with."""

    recording: Recording[Tensor]
    places: Places
    gradients: dict[int, Tensor | None]
    """What every replay leaves in `.grad`, by the id of the leaf."""
    leaves: list[tuple[Tensor, Tensor, bool]]
    """Each leaf, its memory (kept: nothing else can then have its address), and whether it wants a gradient."""
    modules: list[tuple[nn.Module, bool]]
    """The shared modules, and whether they were in training mode."""

    def fits(self) -> bool:
        """Whether parameters are where the recording looks for them, and want what they wanted; modules likewise."""
        return all(
            leaf.data_ptr() == memory.data_ptr() and leaf.requires_grad is wanted
            for leaf, memory, wanted in self.leaves
        ) and all(module.training is training for module, training in self.modules)


@dataclass(eq=False)
class Kind(Generic[R]):
    """Batches that one recording serves."""

    key: tuple[Any, ...]
    taken: int = 0
    """Steps so far."""
    recorded: R | None = None


class Kinds(Generic[R]):
    """The kinds that are recorded or may be soon; one seen long ago and never recorded makes room for a new one."""

    def __init__(self) -> None:
        self._latest_last: list[Kind[R]] = []

    @property
    def any_recorded(self) -> bool:
        """Whether there is a recording."""
        return any(kind.recorded is not None for kind in self._latest_last)

    def of(self, key: tuple[Any, ...]) -> Kind[R] | None:
        """The kind with this key; None where all that there may be are recorded, and this is none of them."""
        kinds = self._latest_last
        found = next((kind for kind in reversed(kinds) if kind.key == key), None)
        if found is not None:
            kinds.remove(found)
        elif len(kinds) == MOST:
            dispensable = next((kind for kind in kinds if kind.recorded is None), None)
            if dispensable is None:
                return None
            kinds.remove(dispensable)
        kinds.append(found or Kind(key))
        return kinds[-1]
