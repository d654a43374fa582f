"""The losses of several tasks as CUDA graphs: one launch computes them, and one lets them learn from the batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from excessmtl.distributed.processes import processes
from excessmtl.losses.together import Lesson, StackableLoss, Stacked, of_entries, stacked_losses
from excessmtl.recording.recorded import can_record
from excessmtl.recording.recording import WARM_UP, GraphCache, Recording, failure, fill, kernel_settings, signature
from excessmtl.torch_private import buffers_of
from excessmtl.warn import warn

_GROUPS = 16
"""So many sets of losses that are computed together have recordings."""
_LARGEST = 2**26
"""Bytes of outputs and labels. A recording keeps several times as much memory, and buys little where that is a lot."""


class _RecordedLesson(Lesson):
    """A lesson that is replayed: its `batch` is the recording alone."""

    __slots__ = ()

    def learn(self) -> None:
        """Now."""
        self.batch[0].replay()


@dataclass(frozen=True, eq=False)
class _RecordedLosses:
    losses: Sequence[StackableLoss]
    """Kept, so that no other loss gets the id of one of them."""
    inputs: list[Tensor]
    compute: Recording[Stacked]
    learn: Recording[None]

    def of(self, *batch: Tensor) -> Stacked:
        """For another batch with the same signature. Its tensors are its own."""
        fill(self.inputs, batch)
        self.compute.replay()
        values, derivatives, labelled, lesson = self.compute.result
        assert derivatives is not None
        assert lesson is not None
        own = values.clone(), derivatives.clone(), labelled.clone()
        return Stacked(*own, _RecordedLesson(lesson.estimates, (self.learn,)))


class RecordedLosses:
    """As `stacked_losses`, from recordings on a CUDA device; the first few batches of each kind are computed eagerly.

    Recordings are not copied with it: they are bound to the memory they were made in.
    """

    def __init__(self) -> None:
        self.failed: str | None = None
        """Why nothing is recorded any more, if so."""
        self.caches: dict[tuple[int, ...], tuple[list[int], GraphCache[_RecordedLosses]]] = {}
        """The ids of losses that are computed together -> where their state is, and recordings that read it there."""

    def __getstate__(self) -> dict[str, Any]:
        return {"failed": None, "caches": {}}

    def __call__(self, losses: Sequence[StackableLoss], input: Tensor, target: Tensor, ignore: int) -> Stacked:
        """The mean loss of each task over its labelled entries; [tasks, ...] outputs and labels."""
        batch = input, target
        eager = self.failed is not None or not torch.is_grad_enabled() or processes() > 1
        if eager or input.nbytes + target.nbytes > _LARGEST or not can_record([*batch]):
            return stacked_losses(losses, *batch, ignore)
        options = losses[0].alike(of_entries(input[0], target[0]), target[0])
        entry = self._cache(losses).entry((options, ignore, kernel_settings(), signature(batch)))
        if entry is not None and entry.recorded is not None:
            return entry.recorded.of(*batch)
        found = stacked_losses(losses, *batch, ignore)
        if entry is not None and _can_learn_at_once(found.lesson):
            entry.steps += 1
            if entry.steps > WARM_UP:  # from the next batch on
                entry.recorded = self._record(losses, batch, ignore)
        return found

    def _cache(self, losses: Sequence[StackableLoss]) -> GraphCache[_RecordedLosses]:
        """That of these losses. Where their state has moved, and where there are too many, recordings are dropped."""
        own, places = tuple(map(id, losses)), [place for loss in losses for place in _addresses(loss)]
        before, cache = self.caches.pop(own, (places, None))
        if cache is None or before != places:
            cache = GraphCache()
        self.caches[own] = places, cache  # the latest last
        if len(self.caches) > _GROUPS:
            del self.caches[next(iter(self.caches))]
        return cache

    def _record(
        self, losses: Sequence[StackableLoss], batch: tuple[Tensor, Tensor], ignore: int
    ) -> _RecordedLosses | None:
        try:
            input, target = (torch.empty_like(tensor) for tensor in batch)
            fill((input, target), batch)
            stream, pool = torch.cuda.Stream(input.device), torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]
            compute = Recording(lambda: stacked_losses(losses, input, target, ignore), stream, pool)
            learn = Recording(lambda: compute.result.lesson.learn(), stream, pool)  # type: ignore[union-attr]
            return _RecordedLosses(losses, [input, target], compute, learn)
        except Exception as error:  # the same batch went well without a recording
            self.failed = failure(error)
            warn(f"the robust losses are not replayed: {self.failed}")
            return None


def _can_learn_at_once(lesson: Lesson | None) -> bool:
    """Not in evaluation mode, nor where one estimate serves several tasks."""
    return lesson is not None and len(set(lesson.estimates)) == len(lesson.estimates)


def _addresses(loss: StackableLoss) -> list[int]:
    """Where what the loss knows is in memory."""
    buffers = [buffer for part in loss.modules() for buffer in buffers_of(part).values()]
    return [0 if buffer is None else buffer.data_ptr() for buffer in buffers]
