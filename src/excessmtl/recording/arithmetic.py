"""What a step works out between the walks of autograd, recorded as a CUDA graph: a hundred small kernels in one launch.

The walks themselves stay as they are, so nothing is asked of the training loop. (`excessmtl.Replay` records whole
steps, and asks that they be given to it as a function.)
"""

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from excessmtl.gradients.cut import Cut
from excessmtl.gradients.walked import Walked
from excessmtl.gradients.write import Contribution
from excessmtl.recording.graph import WARM_UP, Recording, failure
from excessmtl.recording.inputs import Arguments, Places
from excessmtl.recording.kinds import Kinds, settings
from excessmtl.recording.results import Results
from excessmtl.state import StatefulModule
from excessmtl.step import Step

Outcome = tuple[list[Contribution], Step]
"""The gradients to write, and the step."""
Work = Callable[[Walked], Outcome]
_LARGEST = 2**26
"""Bytes. More take the device longer than launching its work takes the host, and a recording keeps copies of them."""


@dataclass(frozen=True)
class _Recorded:
    recording: Recording[tuple[Results, Tensor]]
    """Of the gradients, and of the step's numbers."""
    places: Places
    targets: list[Tensor | None]
    """Where each gradient goes: to a leaf, or (None) to the cut."""
    tasks: tuple[str, ...]

    def outcome(self, walked: Walked, tensors: list[Tensor]) -> Outcome:
        """For another batch of the kind."""
        self.places.fill(tensors)
        self.recording.replay()
        gradients, numbers = self.recording.result
        targets = (walked.cut if target is None else target for target in self.targets)
        # The numbers have memory of their own: whoever keeps the steps of a training must not keep its gradients too.
        return list(zip(targets, gradients.copies(), strict=True)), Step(self.tasks, numbers.clone())


class Arithmetic:
    """Does the work of a step: the first few times with a kind of batch as it is, then from a recording.

    Belongs to one balancer, and is not copied with it: a recording is bound to the memory it was made in.
    """

    def __init__(self) -> None:
        self.failed: str | None = None
        """Why nothing is recorded any more, if so."""
        self._kinds: Kinds[_Recorded] = Kinds()
        self._stream: torch.cuda.Stream | None = None

    def __deepcopy__(self, memo: Any) -> "Arithmetic":
        return Arithmetic()

    def __reduce__(self) -> tuple[Any, ...]:
        return Arithmetic, ()

    def takes(self, walked: Walked) -> bool:
        """Whether a batch is of use here."""
        return (
            self.failed is None
            and _can_record(walked.cut.stored.device)
            and not walked.sparse
            and sum([tensor.nbytes for tensor in walked.tensors]) <= _LARGEST
        )

    def outcome(self, walked: Walked, situation: Hashable, balancer: StatefulModule, work: Work) -> Outcome:
        """What `work` makes of the batch. `situation`: what it depends on, beside the batch and the balancer's state.

        The state moves with it, before gradients are written: a step that fails in the walk that follows has counted.
        """
        tensors = walked.tensors
        looks = [(tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in tensors]
        kind = self._kinds.of((situation, settings(), walked.kind, looks))
        if kind is None:
            return work(walked)
        if kind.recorded is None and kind.taken >= WARM_UP and all(one.device == tensors[0].device for one in tensors):
            kind.recorded = self._record(walked, tensors, balancer, work)
        if kind.recorded is not None:
            return kind.recorded.outcome(walked, tensors)
        outcome = work(walked)
        kind.taken += 1  # now: a batch that is refused is none that a recording could be made for
        return outcome

    def _record(self, walked: Walked, tensors: list[Tensor], balancer: StatefulModule, work: Work) -> _Recorded | None:
        device = tensors[0].device
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        targets: list[Tensor | None] = []

        def recorded() -> tuple[Results, Tensor]:
            parts, step = work(walked.on(places.arguments[0]))
            targets[:] = [None if isinstance(target, Cut) else target for target, _ in parts]
            return Results([gradient for _, gradient in parts]), step.numbers

        try:
            places = Places(Arguments((tensors,)), device)
            recording = Recording(recorded, balancer, self._stream)
        except Exception as error:  # the work as it is will say so again if it is to blame
            self.failed = failure(error)
            warnings.warn(f"the balancer's arithmetic is not replayed: {self.failed}", stacklevel=5)
            return None
        return _Recorded(recording, places, targets, balancer.tasks)


def _can_record(device: torch.device) -> bool:
    """Not inside somebody else's recording either."""
    return device.type == "cuda" and torch.version.hip is None and not torch.cuda.is_current_stream_capturing()
