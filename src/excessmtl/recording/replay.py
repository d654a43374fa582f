"""Whole training steps recorded once and replayed: small networks spend most of a step on launching kernels."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from excessmtl.distributed.processes import processes
from excessmtl.graph.search import leaves_among, nodes_of
from excessmtl.recording.buffers import copied, fill, obstacle, signature
from excessmtl.recording.optimizer import RecordedOptimizer
from excessmtl.recording.recording import MOST, WARM_UP, GraphCache, Recording, failure, kernel_settings, on_stream
from excessmtl.step.result import Step
from excessmtl.step.run import step_key
from excessmtl.torch_private import tree_flatten, tree_map, tree_unflatten
from excessmtl.warn import warn

if TYPE_CHECKING:
    from excessmtl.balancer import Balancer

Losses = Mapping[str, Tensor | None]
_OPTIONS = frozenset({"at", "mask"})
"""Of `balancer.backward`; those left out hold numbers from the host, which a recording would repeat."""


@dataclass(frozen=True)
class _RecordedStep:
    recording: Recording[Tensor]
    static_inputs: list[Any]
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


class Replay:
    """A whole training step in one call; on a CUDA device, after the first few, in one launch.

    A call does what these lines would: gradients to None, `compute`, `balancer.backward`, and, with an optimiser,
    its `step`. Gradients are those of this call alone, in `.grad` as usual. The first three calls with a kind of batch
    run as they are and the next is recorded; from then on the batch is copied to where the recording reads it, and no
    line of Python in `compute` runs. Whatever cannot be recorded runs as it is: on a CPU everything; see `reason`.

    Args:
        balancer: Any; methods that decide on the host (`rlw`, `graddrop`, `pcgrad`, `moml`) run as they are.
        compute: Called with the batch, its tensors on the balancer's device; runs the model and returns the losses as
            `balancer.backward` takes them, or `(losses, {"at": z, "mask": mask})`. It is called once for all batches
            that look alike, so it must do the same operations for them. Other tensors it reads must stay where they
            are; change them in place.
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
        kinds = [type(part).__name__ for part in (balancer, compute, optimizer)]
        if not hasattr(balancer, "backward") or not hasattr(balancer, "rule"):
            raise ValueError(f"balancer must be a Balancer, found {kinds[0]}; make one with excessmtl.create")
        if not callable(compute):
            raise ValueError(f"compute must be a function from a batch to losses, found {kinds[1]}")
        if optimizer is not None and not (hasattr(optimizer, "step") and hasattr(optimizer, "param_groups")):
            raise ValueError(f"optimizer must be a torch optimiser, found {kinds[2]}; or leave it out")
        self.balancer, self.compute = balancer, compute
        self.reason: str | None = None
        """Why the last call ran as it is and others like it are going to; None where it was replayed, or will be."""
        self._optimizer = None if optimizer is None else RecordedOptimizer(optimizer)
        self._failed: str | None = None
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._cache: GraphCache[_RecordedStep] = GraphCache()
        self._leaves: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()

    def __call__(self, *batch: Any) -> Step:
        """Train on a batch; tensors may be nested in tuples, lists and dicts."""
        device = self.balancer.device
        self.reason = self._failed or self._obstacle(device)
        if self.reason is not None:
            return self._eager(batch, device)
        if self._stream is None or self._stream.device != device:  # what was recorded on another device is forgotten
            self.reset()
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        if self._optimizer is not None:
            if not self._optimizer.unchanged():
                self.reset()
            self._optimizer.place_learning_rates(device)
        leaves, structure = tree_flatten(batch)
        recorded = self._recorded(leaves, structure, self._stream)
        if recorded is not None:
            return self._replayed(recorded, leaves)
        with on_stream(self._stream, device):
            return self._eager(batch, device)

    def reset(self) -> None:
        """Forget all recordings; needed only where parameters or buffers were replaced by other objects."""
        if self._stream is not None and any(entry.recorded for entry in self._cache.entries):
            torch.cuda.synchronize(self._stream.device)  # one of them may still be running
        self._cache, self._pool = GraphCache(), None

    def _obstacle(self, device: torch.device) -> str | None:
        """Why no step can be recorded now, if none can."""
        rule = self.balancer.rule
        if device.type != "cuda":
            return f"the model is on device {device}; steps are recorded on CUDA devices"
        if rule.uses_host:
            return f"method {rule.name!r} cannot be recorded (uses_host is True): it decides on the host"
        if processes() > 1:
            return "several processes train together"
        return "micro-batches wait for the last one of their step" if self.balancer.accumulating else None

    def _eager(self, batch: tuple[Any, ...], device: torch.device) -> Step:
        ahead = device.type == "cuda"  # its stream keeps the order; on a host nothing waits for a copy that comes later
        moved = tree_map(lambda x: x.to(device, non_blocking=ahead) if isinstance(x, Tensor) else x, batch)
        step = self._backward(moved)
        if self._optimizer is not None:
            self._optimizer.step()
        return step

    def _backward(self, batch: tuple[Any, ...]) -> Step:
        """Forward and backward, from gradients that are None: of all that this or an earlier call has reached."""
        for leaf in self._reached():
            leaf.grad = None
        losses, options = _losses_and_options(self.compute(*batch))
        roots = [losses] if isinstance(losses, Tensor) else losses.values()
        for leaf in leaves_among(nodes_of(roots)):
            if id(leaf) not in self._leaves:
                leaf.grad, self._leaves[id(leaf)] = None, leaf
        return self.balancer.backward(losses, **options)

    def _reached(self) -> list[Tensor]:
        """Shared parameters, those of the optimiser, and all leaves that losses were computed from."""
        if not self._leaves:
            groups = [] if self._optimizer is None else self._optimizer.optimizer.param_groups
            stepped = [parameter for group in groups for parameter in group["params"]]
            self._leaves.update({id(leaf): leaf for leaf in (*self.balancer.shared_parameters, *stepped)})
        return list(self._leaves.values())

    def _recorded(self, leaves: list[Any], structure: Any, stream: torch.cuda.Stream) -> _RecordedStep | None:
        """The recording for a batch like this one, made now if it is time; None where the step runs as it is."""
        self.reason = obstacle(leaves)
        if self.reason is not None:
            return None
        key = step_key(self.balancer), torch.is_grad_enabled(), kernel_settings(), structure, signature(leaves)
        entry = self._cache.entry(key)
        if entry is None:
            self.reason = f"{MOST} kinds of batches are recorded already, the most there may be"
            return None
        if entry.recorded is None and entry.steps >= WARM_UP:
            with on_stream(stream, stream.device):
                entry.recorded = self._record(leaves, structure, stream)
        if entry.recorded is not None and not entry.recorded.fits():
            self.reset()
            return None
        entry.steps += 1
        return entry.recorded

    def _record(self, leaves: list[Any], structure: Any, stream: torch.cuda.Stream) -> _RecordedStep | None:
        optimizer = self._optimizer if self._optimizer is not None and self._optimizer.recordable else None
        inputs = copied(leaves, stream.device)
        self._pool = self._pool or torch.cuda.graph_pool_handle()

        def work() -> Tensor:
            step = self._backward(tree_unflatten(inputs, structure))
            if optimizer is not None:
                optimizer.step()
            return step.numbers

        try:
            recording = Recording(work, self.balancer.memory, stream, self._pool)
        except BaseException as error:
            self.reset()
            for leaf in self._reached():  # what lies there was never computed
                leaf.grad = None
            if not isinstance(error, Exception):
                raise
            # If the step itself is to blame, taking it as it is will say so.
            if optimizer is not None:
                optimizer.recordable = False  # perhaps it was the optimiser: the next attempt goes without
            else:
                self.reason = self._failed = failure(error)
                warn(f"steps are not replayed: {self._failed}")
            return None
        if optimizer is not None:
            optimizer.remember()
        reached = self._reached()
        gradients = {id(leaf): leaf.grad for leaf in reached}
        memory = [(leaf, leaf.detach(), leaf.requires_grad) for leaf in reached]
        modes = [(module, module.training) for module in self.balancer._shared.modules]
        return _RecordedStep(recording, inputs, gradients, memory, modes)

    def _replayed(self, recorded: _RecordedStep, leaves: list[Any]) -> Step:
        fill(recorded.static_inputs, leaves)
        recorded.recording.replay()
        for leaf in self._reached():
            leaf.grad = recorded.gradients.get(id(leaf))
        if self._optimizer is not None and not self._optimizer.recordable:
            self._optimizer.step()
        return self.balancer._note(Step(self.balancer.tasks, recorded.recording.result.clone()))


def _losses_and_options(returned: Any) -> tuple[Losses | Tensor, Mapping[str, Any]]:
    """What `compute` returned: losses, and arguments of `backward`."""
    losses, options = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
    is_matrix = isinstance(losses, Tensor) and losses.ndim >= 2
    if not (isinstance(losses, Mapping) or is_matrix) or not isinstance(options, Mapping):
        kinds = ", ".join(type(part).__name__ for part in (returned if isinstance(returned, tuple) else [returned]))
        expected = "a dict from task to loss, a matrix of losses, or (losses, {'at': z})"
        raise ValueError(f"compute must return {expected}, found {kinds}")
    if unknown := set(options) - _OPTIONS:
        raise ValueError(f"compute returned the option {min(unknown)!r}; it may return {sorted(_OPTIONS)}")
    return losses, options
