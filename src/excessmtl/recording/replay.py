"""Replay: training steps recorded once as CUDA graphs and launched as a whole, for networks that a GPU outruns."""

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from excessmtl.distributed.processes import processes
from excessmtl.graph.search import leaves_among, nodes_of
from excessmtl.recording.cache import MOST, Entry, GraphCache, RecordedStep, settings
from excessmtl.recording.checks import Losses, check_parts, losses_and_options
from excessmtl.recording.optimizer import OptimizerSteps
from excessmtl.recording.recording import WARM_UP, Recording, failure, on_stream
from excessmtl.recording.static_inputs import Arguments, StaticInputs, moved_to_device
from excessmtl.step.result import Step
from excessmtl.step.run import step_key
from excessmtl.warn import warn

if TYPE_CHECKING:
    from excessmtl.balancer import Balancer


class Replay:
    """A whole training step in one call; on a CUDA device, after the first few, in one launch.

    A call does what these lines would: gradients to None, `compute`, `balancer.backward`, and, with an optimiser,
    its `step`. Gradients are those of this call alone, in `.grad` as usual. The first three calls with a kind of batch
    run as they are and the next is recorded; from then on the batch is copied to where the recording reads it, and no
    line of Python in `compute` runs. Whatever cannot be recorded runs as it is: on a CPU everything; see `reason`.

    Args:
        balancer: Any; methods that draw random numbers on the host (`rlw`, `graddrop`, `pcgrad`) and `moml` run as
            they are.
        compute: Called with the batch, its tensors on the balancer's device; runs the model and returns the losses as
            `balancer.backward` takes them, or `(losses, {"at": z, "mask": mask})`. For batches that look alike it must
            do the same operations: it is called once for all of them. Other tensors it reads must stay where they are;
            change them in place.
        optimizer: Takes its step with each call. Made with `capturable=True` (Adam and most others have it), its step
            is part of the recording, and its learning rates become tensors, which schedulers fill; any other one steps
            after it. Without one, step yourself, whenever you like.
    """

    def __init__(
        self,
        balancer: "Balancer",
        compute: Callable[..., Losses | tuple[Losses, Mapping[str, Any]]],
        optimizer: Optimizer | None = None,
    ) -> None:
        check_parts(balancer, compute, optimizer)
        self.balancer, self.compute = balancer, compute
        self.reason: str | None = None
        """Why the last call ran as it is and others like it are going to; None where it was replayed, or will be."""
        self._stepping = None if optimizer is None else OptimizerSteps(optimizer)
        self._failed: str | None = None
        self._device: torch.device | None = None
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._cache: GraphCache[RecordedStep] = GraphCache()
        self._leaves: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()

    def __call__(self, *batch: Any) -> Step:
        """Train on a batch; tensors may be nested in tuples, lists and dicts."""
        device = self.balancer.device
        self.reason = self._failed or self._obstacle(device)
        if self.reason is not None:
            return self._as_it_is(moved_to_device(batch, device))
        stream = self._stream_on(device)
        if self._stepping is not None:
            if not self._stepping.still_recorded():
                self.reset()
            self._stepping.settle(device)
        arguments = Arguments(batch)
        recorded = self._recorded(arguments, stream, device)
        if recorded is not None:
            return self._replayed(recorded, arguments)
        with on_stream(stream, device):
            return self._as_it_is(moved_to_device(batch, device))

    def reset(self) -> None:
        """Forget all recordings; needed only where parameters or buffers were replaced by other objects."""
        if self._cache.recordings:
            torch.cuda.synchronize(self._device)  # one of them may still be running
        self._cache, self._pool = GraphCache(), None

    # ------------------------------------------------------------------ a step as it is

    def _as_it_is(self, batch: tuple[Any, ...]) -> Step:
        step = self._backward(batch)
        if self._stepping is not None:
            self._stepping.step()
        return step

    def _backward(self, batch: tuple[Any, ...]) -> Step:
        """Forward and backward, from gradients that are None: of all that this or an earlier call has reached."""
        for leaf in self._known():
            leaf.grad = None
        losses, options = losses_and_options(self.compute(*batch))
        roots = [losses] if isinstance(losses, Tensor) else losses.values()
        for leaf in leaves_among(nodes_of(roots)):
            if id(leaf) not in self._leaves:
                leaf.grad, self._leaves[id(leaf)] = None, leaf
        return self.balancer.backward(losses, **options)

    def _known(self) -> list[Tensor]:
        if not self._leaves:
            stepped = () if self._stepping is None else self._stepping.parameters
            self._leaves.update({id(leaf): leaf for leaf in (*self.balancer.shared_parameters, *stepped)})
        return list(self._leaves.values())

    # ------------------------------------------------------------------ recordings

    def _stream_on(self, device: torch.device) -> torch.cuda.Stream:
        """Where steps run that are going to be recorded. What was recorded on another device is forgotten."""
        if self._stream is None or device != self._device:
            self.reset()
            self._stream, self._device = torch.cuda.Stream(device), device  # type: ignore[no-untyped-call]
        return self._stream

    def _obstacle(self, device: torch.device) -> str | None:
        """Why no step can be recorded now, if none can."""
        rule = self.balancer.rule
        if device.type != "cuda":
            return f"the model is on device {device}; steps are recorded on CUDA devices"
        if rule.uses_host:
            return f"method {rule.name!r} cannot be recorded (uses_host is True): it decides on the host"
        if processes() > 1:
            return "several processes train together"
        if self.balancer.accumulating:
            return "micro-batches wait for the last one of their step"
        return None

    def _recorded(self, arguments: Arguments, stream: torch.cuda.Stream, device: torch.device) -> RecordedStep | None:
        """The recording for a batch like this one, made now if it is time; None where the step runs as it is."""
        self.reason = arguments.obstacle
        if self.reason is not None:
            return None
        entry = self._cache.entry((step_key(self.balancer), torch.is_grad_enabled(), settings(), arguments.look))
        if entry is None:
            self.reason = f"{MOST} kinds of batches are recorded already, the most there may be"
            return None
        if entry.recorded is None and entry.taken >= WARM_UP:
            with on_stream(stream, device):
                self._record(entry, arguments, stream, device)
        if entry.recorded is not None and not entry.recorded.fits():
            self.reset()
            return None
        entry.taken += 1
        return entry.recorded

    def _record(
        self, entry: Entry[RecordedStep], arguments: Arguments, stream: torch.cuda.Stream, device: torch.device
    ) -> None:
        stepping = self._stepping if self._stepping is not None and self._stepping.inside else None
        inputs = StaticInputs(arguments, device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()

        def work() -> Tensor:
            step = self._backward(inputs.arguments)
            if stepping is not None:
                stepping.step()
            return step.numbers

        try:
            recording = Recording(work, self.balancer.memory, stream, self._pool)
        except BaseException as error:
            self.reset()
            for leaf in self._known():  # what lies there was never computed
                leaf.grad = None
            if not isinstance(error, Exception):
                raise
            # If the step itself is to blame, taking it as it is will say so.
            if stepping is not None:
                stepping.inside = False  # perhaps it was the optimiser: the next attempt goes without
                return
            self.reason = self._failed = failure(error)
            warn(f"steps are not replayed: {self._failed}")
            return
        leaves = self._known()
        if stepping is not None:
            stepping.note_recorded()
        entry.recorded = RecordedStep(
            recording,
            inputs,
            {id(leaf): leaf.grad for leaf in leaves},
            [(leaf, leaf.detach(), leaf.requires_grad) for leaf in leaves],
            [(module, module.training) for module in self.balancer._shared.modules],
        )

    def _replayed(self, recorded: RecordedStep, arguments: Arguments) -> Step:
        recorded.inputs.fill(arguments.leaves)
        recorded.recording.replay()
        for leaf in self._known():
            leaf.grad = recorded.gradients.get(id(leaf))
        if self._stepping is not None and not self._stepping.inside:
            self._stepping.step()
        return self.balancer._note(Step(self.balancer.tasks, recorded.recording.result.clone()))
