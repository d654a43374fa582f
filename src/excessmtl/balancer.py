"""Balancer: what a training loop talks to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl import inputs
from excessmtl.gradients.cut import forget
from excessmtl.gradients.observation import Probe
from excessmtl.gradients.rewalk import defer_again, write_again
from excessmtl.gradients.validation import Losses, Validation
from excessmtl.gradients.write import defer, write
from excessmtl.methods.base import Heads, Rule
from excessmtl.shared import Shared
from excessmtl.step import Step
from excessmtl.stepping import Stepping

At = Tensor | Sequence[Tensor] | Mapping[str, Tensor | Sequence[Tensor]]


class Balancer(Stepping):
    """Weighs tasks by a rule and sends their combined gradient through the shared parameters.

    Args:
        rule: The method.
        tasks: The task names; their order is the order of every tensor in `Step`.
        shared: The module (or parameters) that all tasks share. With a module, its outputs are the
            representation unless `at=` says otherwise.
        heads: What a task's own parameters receive: the gradient of `w_i l_i` ("weighted") or of `l_i`
            ("unweighted"). Default: as in the method's paper.
        every: Ask the rule at every k-th step only; in between the weights stay.
        scale: Factor on all weights. Methods on the simplex sum to 1 as in the ExcessMTL paper; pass
            `scale=len(tasks)` for the habit of summing losses.
        layer: For GradNorm: the layer whose gradient norms it equalises. Default: the last shared weight matrix.
        pool: Whether the processes of `torch.distributed`, where there are several, decide together by what all their
            batches say. Turn it off for processes that train different models.
        tasks_at_once: For methods that look at all shared parameters: how many tasks are walked through the trunk
            together, where they meet it at one tensor. More take more memory. Default: 8 on a GPU, fewer where that
            tensor is large; 1 on a CPU. Graphs that do not allow it are walked task by task.
        streaming: For the paper's estimate on all shared parameters: let the gradients of a task go as soon as its
            excess risk is known, and walk the trunk once more for the weighted sum. There are then as many gradients
            as tasks are walked together, not one per task. Default: for 16 tasks or more whose gradients would take
            over 64 MB, where nothing needs them (a scaler, micro-batches, several processes).
        record: On a CUDA device, where the tasks meet at one tensor of moderate size: what a step works out between the
            walks of autograd is recorded as a CUDA graph and launched as a whole, after three steps with a kind of
            batch. Such a step is counted before it walks the trunk, and stays so should that walk fail. Turn it off to
            look into a rule while it works.
    """

    def __init__(
        self,
        rule: Rule,
        tasks: Sequence[str],
        shared: nn.Module | Iterable[Tensor],
        *,
        heads: Heads | None = None,
        every: int = 1,
        scale: float = 1.0,
        layer: nn.Module | Tensor | Iterable[Tensor] | None = None,
        pool: bool = True,
        tasks_at_once: int | None = None,
        streaming: bool | None = None,
        record: bool = True,
    ) -> None:
        if heads not in (None, "weighted", "unweighted"):
            raise ValueError(f"heads must be 'weighted' or 'unweighted', found {heads!r}")
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a whole number of steps, at least 1, found {every!r}")
        if every > 1 and rule.gated:
            raise ValueError(f"every must be 1 for {rule.name!r}, found {every}: its multipliers fit one batch only")
        if not 0 < scale < float("inf"):
            raise ValueError(f"scale must be a positive number, found {scale!r}")
        if layer is not None and rule.probe is not Probe.LAYER:
            raise ValueError(f"layer is not used by {rule.name!r}; leave it out")
        if tasks_at_once is not None and rule.probe is not Probe.SHARED:
            raise ValueError(f"tasks_at_once is not used by {rule.name!r} as it is set up here; leave it out")
        if tasks_at_once is not None and (not isinstance(tasks_at_once, int) or tasks_at_once < 1):
            raise ValueError(f"tasks_at_once must be a whole number of tasks, at least 1, found {tasks_at_once!r}")
        if streaming and not rule.streams:
            raise ValueError(f"streaming is not used by {rule.name!r} as it is set up here; leave it out")
        names = inputs.task_names(tasks)
        super().__init__(
            rule.bind(names),
            names,
            Shared(shared, layer),
            heads=heads or rule.heads,
            every=every,
            scale=float(scale),
            pool=pool,
            tasks_at_once=tasks_at_once,
            streaming=streaming,
            record=record,
        )
        looked_at = {Probe.SHARED: self._shared.parameters, Probe.LAYER: self._shared.layer}.get(rule.probe, ())
        if any(parameter.is_complex() for parameter in looked_at):
            raise ValueError(
                f"{rule.name!r} looks at the gradients of shared parameters, and some of these are complex; keep real "
                "and imaginary parts as parameters of their own, or take a method that looks at the representation or "
                "at the losses"
            )
        self.last_step: Step | None = None

    def extra_repr(self) -> str:
        """The method, its options and the tasks."""
        return f"{self.rule}, tasks={list(self.tasks)}, heads={self.heads!r}, every={self.every}, scale={self.scale}"

    def backward(
        self,
        losses: Losses,
        at: At | None = None,
        *,
        mask: Mapping[str, Tensor] | None = None,
        scaler: Any = None,
        accumulate: bool = False,
        metrics: Mapping[str, float] | None = None,
        validation_losses: Validation | None = None,
    ) -> Step:
        """Add the balanced gradient to `.grad` of everything the losses reach, as `loss.backward()` would.

        Args:
            losses: Task -> scalar loss. A task that is missing or None has no label in this batch.
            at: The shared representation, where it is not simply the output of the `shared` module: a tensor,
                a tuple, or a dict from task to either.
            mask: Task -> bool tensor over the batch, where only some samples carry a label.
            scaler: A `torch.amp.GradScaler`; gradients are scaled by it, statistics are not.
            accumulate: True for all micro-batches but the last; statistics are updated once, with the last.
                Divide the losses by the number of micro-batches as usual. Methods that look at all shared
                parameters hold the gradients back until the last one; the others give all micro-batches the
                weights of the step before.
            metrics: Task -> indicator in (0, 1], for DTP.
            validation_losses: For MOML: a function that returns task -> loss on validation data (called with the
                parameters moved one step ahead), or such a dict (first-order form).
        """
        call = self._open(losses, at, mask, scaler, accumulate, metrics, validation_losses)
        route = self._route(call)
        walked = self._walk(call, route)
        if walked is not None and self._recordable(call, route) and self._arithmetic.takes(walked):
            parts, step = self._taken(call, route, walked)
            del walked  # and with it the tasks' gradients: the trunk is walked with their sum
            write(parts)
        else:
            batch, decision, weights, parts = self._work_out(call, route, self.heads, walked)
            del walked
            batch = self._left_of(call, batch)
            if route.again:
                write_again(call.losses, route.cuts, parts)
            else:
                write(parts)
            step = self._close(call, batch, decision, weights)
        forget(route.cuts if route.heads is None else [route.heads.cut])
        return step

    def forward(
        self,
        losses: Losses,
        at: At | None = None,
        *,
        mask: Mapping[str, Tensor] | None = None,
        scaler: Any = None,
        accumulate: bool = False,
        metrics: Mapping[str, float] | None = None,
        validation_losses: Validation | None = None,
    ) -> Tensor:
        """A scalar to call `.backward()` on: the same gradient on the shared parameters as `backward`.

        Task-specific parameters receive the gradient of `w_i l_i`, whatever `heads` says: that is what a scalar
        can express. Pass `scaler` here too if you are going to scale the result. The details of the step are in
        `last_step`.
        """
        call = self._open(losses, at, mask, scaler, accumulate, metrics, validation_losses)
        route = self._route(call, stacklevel=5)
        batch, decision, weights, parts = self._work_out(call, route, "weighted", self._walk(call, route))
        value = torch.where(batch.ok, batch.values * weights * self.scale, 0).sum()
        if not parts:  # all is held back until the last micro-batch
            first = next(iter(call.shared.values()))
            parts = [(first, torch.zeros_like(first))]
        if route.again:
            scalar = defer_again(value, call.losses, route.cuts, parts, call.scale)
        else:
            scalar = defer(value, parts, call.scale)
        self.last_step = self._close(call, self._left_of(call, batch), decision, weights)
        return scalar

    def end_epoch(self) -> None:
        """Tell rules that count epochs (DWA) that one is over."""
        self.remember(self.rule.end_epoch(self.state))

    @property
    def accumulating(self) -> bool:
        """Whether micro-batches wait for the last one of their step."""
        return bool(self._pending)

    @property
    def device(self) -> torch.device:
        """Where the shared parameters are; the state follows them at the next step."""
        return self._shared.device

    @property
    def shared_parameters(self) -> list[Tensor]:
        """All shared parameters, frozen ones included."""
        return self._shared.parameters

    @property
    def shared_modules(self) -> list[nn.Module]:
        """The shared module and all in it; none where parameters were given."""
        module = self._shared.module
        return [] if module is None else list(module.modules())
