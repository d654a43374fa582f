"""What a robust loss has learned from its batches."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from excessmtl.distributed.processes import over_processes, processes
from excessmtl.torch_private import buffers_of, copy_all

State = dict[str, Tensor]
"""The buffers of several estimates of one kind by name, stacked: [estimates, ...]."""


class Estimate(nn.Module):
    """A module whose buffers are running estimates: fp32 whatever the model is, and the same in all processes.

    Args:
        pool: whether the processes of `torch.distributed`, where there are several, learn from all their batches.
        shapes: name of a buffer -> its shape; it starts at zero.
    """

    _facts: Tensor | None = None
    """Inside `together`: what the state says, computed for all."""
    _waiting: list[tuple[Hashable, tuple[Tensor, ...]]] | None = None
    """Inside `together`: batches to learn from at its end."""

    def __init__(self, pool: bool, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.pool = pool
        with torch.inference_mode(False):  # a tensor made in inference mode could never be updated
            for name, shape in shapes.items():
                self.register_buffer(name, torch.zeros(shape, dtype=torch.float32))

    @property
    def learns(self) -> bool:
        """Not in `eval()` mode, nor where gradients are off: then no other process may be training."""
        return self.training and torch.is_grad_enabled()

    @property
    def constants(self) -> Hashable:
        """Options that `facts` and `learned` depend on."""
        raise NotImplementedError

    def facts(self, state: State) -> Tensor:
        """[estimates, ...] what the states say, for the loss."""
        raise NotImplementedError

    def learned(self, state: State, kind: Any, *batch: Tensor) -> State:
        """The states after a batch, of which each tensor is [estimates, ...]. `kind`: what is not a tensor."""
        raise NotImplementedError

    @torch.no_grad()
    def read(self) -> Tensor:
        """What the state says, for the loss."""
        return self.facts(_stacked([self]))[0] if self._facts is None else self._facts

    def learn(self, kind: Hashable, *batch: Tensor) -> None:
        """Learn from a batch: now, or at the end of `together`."""
        if self._waiting is None:
            _learn([self], kind, [batch])
        else:
            self._waiting.append((kind, batch))

    def pooled(self, sums: Tensor) -> Tensor:
        """Sums over the batch, summed over the processes too."""
        return over_processes(sums) if self.pool and processes() > 1 else sums

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves to another device as any module does, and stays in fp32: half precision cannot count to 3,000."""

        def moved(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        with torch.inference_mode(False):
            super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self


@contextmanager
def together(losses: Iterable[object]) -> Iterator[None]:
    """Inside, the estimates of these losses are read at once, those of one kind together; so they learn at the end.

    The numbers are those of one after the other, in fewer operations. Where the block fails, none has changed.
    """
    modules = dict.fromkeys(part for loss in losses if isinstance(loss, nn.Module) for part in loss.modules())
    estimates = [part for part in modules if isinstance(part, Estimate)]
    if len(estimates) < 2 or torch.compiler.is_compiling():
        yield
        return
    try:
        for group in _alike(estimates, [_kind(estimate) for estimate in estimates]):
            with torch.no_grad():
                facts = group[0].facts(_stacked(group)).unbind()
            for estimate, its in zip(group, facts, strict=True):
                vars(estimate).update(_facts=its, _waiting=[])
        yield
        waiting = [(estimate, *batch) for estimate in estimates for batch in estimate._waiting or ()]
    finally:
        for estimate in estimates:
            vars(estimate).update(_facts=None, _waiting=None)
    keys = [
        # Processes have to learn in one order, whatever the shapes of their batches.
        place if estimate.pool and processes() > 1 else (_kind(estimate), kind, tuple(part.shape for part in batch))
        for place, (estimate, kind, batch) in enumerate(waiting)
    ]
    for group in _alike(waiting, keys):
        _learn([estimate for estimate, _, _ in group], group[0][1], [batch for _, _, batch in group])


def _kind(estimate: Estimate) -> Hashable:
    device = next(iter(buffers_of(estimate).values())).device
    return type(estimate), estimate.constants, estimate.pool, device


def _alike(entries: Sequence[Any], keys: Sequence[Hashable]) -> Iterable[list[Any]]:
    """The entries in groups of one key."""
    groups: dict[Hashable, list[Any]] = {}
    for entry, key in zip(entries, keys, strict=True):
        groups.setdefault(key, []).append(entry)
    return groups.values()


def _stacked(estimates: Sequence[Estimate]) -> State:
    states = [buffers_of(estimate) for estimate in estimates]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


@torch.no_grad()
def _learn(estimates: Sequence[Estimate], kind: Hashable, batches: Sequence[tuple[Tensor, ...]]) -> None:
    if len(set(estimates)) < len(estimates):  # one that was called twice learns from one batch after the other
        for estimate, batch in zip(estimates, batches, strict=True):
            _learn([estimate], kind, [batch])
        return
    learned = estimates[0].learned(
        _stacked(estimates), kind, *(torch.stack(parts) for parts in zip(*batches, strict=True))
    )
    buffers = [buffers_of(estimate)[name] for name in learned for estimate in estimates]
    copy_all(buffers, [value for values in learned.values() for value in values.unbind()])


def learns_with_others(loss: object) -> bool:
    """Whether a loss, called now, waits for the same loss of the other processes."""
    parts = loss.modules() if isinstance(loss, nn.Module) and processes() > 1 else ()
    return any(isinstance(part, Estimate) and part.pool and part.learns for part in parts)


def ordinary(tensor: Tensor | None) -> Tensor | None:
    """The tensor; a copy of one made in inference mode, which autograd would refuse."""
    if tensor is None or not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()
