"""Balancer: what a training loop talks to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate as running_sums
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from excessmtl.distributed.processes import Reduction, mean_where, no_reduction, over_processes, processes
from excessmtl.distributed.replicas import ReplicaCheck
from excessmtl.engine import EngineName, chosen_engine
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.deliver import deferred, deliver
from excessmtl.gradients.task_gradients import TaskGradients
from excessmtl.graph.inputs import Losses
from excessmtl.graph.problems import GraphChecks
from excessmtl.graph.representation import forget
from excessmtl.graph.shared import Shared, submodule
from excessmtl.methods.base import Heads, Rule, State
from excessmtl.step import inputs as arguments
from excessmtl.step.multipliers import Scale, factor
from excessmtl.step.notices import Watch
from excessmtl.step.result import Step
from excessmtl.step.run import commit, run, second_backward_explained, weighted_losses
from excessmtl.step.state import Memory, check_keys, state_options
from excessmtl.step.task_changes import by_name, load_matching, take_tasks
from excessmtl.torch_private import outside_compiled_code
from excessmtl.warn import warn

if TYPE_CHECKING:
    from excessmtl.diagnosis import Report

At = Tensor | Sequence[Tensor] | Mapping[str, Tensor | Sequence[Tensor]]


class Balancer(nn.Module):
    """Weighs tasks by a rule and sends their combined gradient through the shared parameters.

    Args:
        rule: The method.
        tasks: The task names; their order is the order of every tensor in `Step`.
        shared: What all tasks share: a module, parameters, or a list of both. The outputs of the modules are the
            representation unless `at=` says otherwise; of an `nn.ModuleList` or `nn.ModuleDict`, those of its members.
        heads: What a task's own parameters receive: the gradient of `w_i l_i` ("weighted") or of `l_i`
            ("unweighted"). Default: as in the method's paper.
        every: Ask the rule at every k-th step only; in between the weights stay.
        scale: What the multipliers of all tasks sum to: the number of tasks ("sum", so that equal ones are those of
            `sum(losses).backward()`) or 1 ("mean"). Methods whose total is part of the method (`uw`, `nash` and
            others: where `rule.total` is None) keep their own under both. A number multiplies the
            method's weights as published. Where a task is missing the others keep their multipliers.
        protect: Task -> floor, a share of the weights of all tasks that this task's never falls below. The others
            shrink in proportion. The method itself does not know of it. Not for methods without weights (`graddrop`,
            `moco`, `db_mtl`, `trimmed_mean`).
        z: With the whole model as `shared`: the dotted name of the submodule that all tasks share, whose output is
            the representation. `shared=model, z="encoder"` is `shared=model.encoder`.
        layer: For GradNorm: the layer whose gradient norms it equalises. Default: the last shared weight matrix.
        pool: Whether the processes of `torch.distributed`, where there are several, decide together by what all their
            batches show. Turn it off for processes that train different models.
        engine: "fast", or "reference": one backward pass per task, written to be read. Both give the same numbers.
        tasks_at_once: For methods that look at all shared parameters: how many tasks go through the trunk in one
            backward pass, where they meet it at one tensor. More take more memory. Default: up to 14 on a GPU, fewer
            where the trunk is large; 1 on a CPU. Graphs that do not allow it take one pass per task.
        record: On a CUDA device, where the tasks meet at one tensor of moderate size: the work between the two backward
            passes is recorded as a CUDA graph and launched as a whole, after three steps with a kind of batch. Turn it
            off to debug a rule.
    """

    def __init__(
        self,
        rule: Rule,
        tasks: Sequence[str],
        shared: nn.Module | Iterable[nn.Module | Tensor],
        *,
        heads: Heads | None = None,
        every: int = 1,
        scale: Scale = "sum",
        protect: Mapping[str, float] | None = None,
        z: str | None = None,
        layer: nn.Module | Tensor | Iterable[Tensor] | None = None,
        pool: bool = True,
        engine: EngineName | AnyGraph = "fast",
        tasks_at_once: int | None = None,
        record: bool = True,
    ) -> None:
        super().__init__()
        arguments.check_options(rule, heads, every, scale, layer)
        names = arguments.task_names(tasks)
        self._given, self.rule, self.tasks = by_name(rule, names), rule.bind(names), names
        self.heads: Heads = heads or rule.heads
        self.every, self.pool = every, pool
        self.scale: Scale = scale if isinstance(scale, str) else float(scale)
        self._factor: tuple[Scale, tuple[str, ...], float] = (0.0, (), 0.0)  # from what `factor` was computed, and it
        self.protect, self._floors = arguments.floors(rule, protect, names)
        self.engine = chosen_engine(engine, rule.probe, tasks_at_once, record)
        self.last_step: Step | None = None
        """What the last step returned, in either form."""
        self._shared, self._checks = Shared(shared if z is None else submodule(shared, z), layer), GraphChecks()
        arguments.check_real(rule, self._shared)
        self._pending: list[TaskGradients] = []
        self._losses_so_far: Tensor | None = None
        self._watch, self._replicas = Watch(names), ReplicaCheck()
        shapes = self._shared.shapes
        self._offsets = tuple(running_sums((shape.numel() for shape in shapes), initial=0))
        self.memory = Memory(self.rule, names, shapes, self._options())
        self.to(self._shared.device)

    def backward(
        self,
        losses: Losses | Tensor,
        at: At | None = None,
        *,
        mask: Mapping[str, Tensor] | Tensor | None = None,
        scaler: Any = None,
        accumulate: bool = False,
        **extras: Any,
    ) -> Step:
        """Add the balanced gradient to `.grad` of everything the losses reach, as `loss.backward()` would.

        Args:
            losses: Task -> scalar loss. A task that is missing or None has no label in this batch. Or a matrix of
                unreduced losses, [batch, tasks] or [batch, tasks, time], in the order of `tasks`: each task's loss is
                the mean over its labelled entries, and NaN marks what has no label.
            at: The shared representation, where it is not simply the output of the `shared` module: a tensor,
                a tuple, or a dict from task to either.
            mask: Task -> bool tensor over the batch, where only some samples carry a label. With a matrix of losses,
                a bool tensor of its shape, or [batch, tasks]: what carries a label, in place of NaN.
            scaler: A `torch.amp.GradScaler`; gradients are scaled by it, statistics are not.
            accumulate: True for all micro-batches but the last; statistics are updated once, with the last.
                Divide the losses by the number of micro-batches as usual. Methods that look at all shared
                parameters hold the gradients back until the last one; the others give all micro-batches the
                weights of the step before.
            extras: What the method reads besides. `metrics`: task -> indicator in (0, 1], for DTP. `validation_losses`,
                for MOML and others: a function that returns task -> loss on validation data (called with the
                parameters moved one step ahead), or such a dict (first-order form). `targets`: task -> the labels of
                the batch, for BayesAgg.
        """
        if torch.compiler.is_compiling():
            step: Step = _backward(self, losses, at, mask=mask, scaler=scaler, accumulate=accumulate, **extras)
            return step
        with second_backward_explained():
            inputs = arguments.checked(self, losses, at, mask=mask, scaler=scaler, accumulate=accumulate, extras=extras)
            plan, outcome = run(self, inputs, self.heads, scalar=False)
            deliver(outcome.parts, plan)
            if plan.representations:
                forget(plan.representations)
            return commit(self, inputs, outcome)

    def forward(
        self,
        losses: Losses | Tensor,
        at: At | None = None,
        *,
        mask: Mapping[str, Tensor] | Tensor | None = None,
        scaler: Any = None,
        accumulate: bool = False,
        **extras: Any,
    ) -> Tensor:
        """A scalar to call `.backward()` on: the same gradient on the shared parameters as `backward`.

        In evaluation mode (`balancer.eval()`), the sum of the losses with the weights last decided: nothing is learned
        and nothing changes, and it works under `torch.no_grad()`. Weights move, so choose a checkpoint by the plain
        sum, `sum(losses.values())`, and not by this one. What follows is about training.

        Task-specific parameters receive the gradient of `w_i l_i`, whatever `heads` says: that is what a scalar
        can express. Pass `scaler` here too if you are going to scale the result. The details of the step are in
        `last_step`. The state has moved on when this returns, whether or not the scalar's backward succeeds.
        """
        if torch.compiler.is_compiling():
            value: Tensor = _forward(self, losses, at, mask=mask, scaler=scaler, accumulate=accumulate, **extras)
            return value
        if not self.training:
            return weighted_losses(self, losses, mask)
        with second_backward_explained():
            inputs = arguments.checked(self, losses, at, mask=mask, scaler=scaler, accumulate=accumulate, extras=extras)
            plan, outcome = run(self, inputs, "weighted", scalar=True)
            assert outcome.value is not None
            scalar = deferred(outcome.value, outcome.parts, plan)
            commit(self, inputs, outcome)
            return scalar

    @property
    def _estimating(self) -> bool:
        return self.memory.steps % self.every == 0

    @property
    def _reduction(self) -> Reduction:
        """How statistics are summed over the processes that train together."""
        return over_processes if self.pool and processes() > 1 else no_reduction

    def _options(self) -> dict[str, str]:
        """What the state depends on."""
        own = {"heads": self.heads, "every": self.every, "scale": self.scale, "protect": self.protect}
        return state_options(self.rule, self._shared, own)

    def extra_repr(self) -> str:
        """The method, its options and the tasks."""
        options: dict[str, Any] = {"tasks": list(self.tasks), "heads": self.heads, "every": self.every}
        options |= {"scale": self.scale, **({"protect": self.protect} if self.protect else {})}
        return ", ".join([str(self.rule), *(f"{name}={value!r}" for name, value in options.items())])

    @property
    def weights(self) -> Tensor:
        """[m] the weights last decided, as published. `step.weights` has what `scale` and `protect` make of them.

        The next step overwrites them: clone what you keep.
        """
        return self.memory.weights

    @property
    def factor(self) -> float:
        """What `scale` multiplies the method's weights by."""
        if self._factor[0] != self.scale or self._factor[1] is not self.tasks:
            tasks = len(self.tasks)
            self._factor = self.scale, self.tasks, factor(self.scale, self.rule.total(tasks), tasks)
        return self._factor[2]

    @property
    def skipped(self) -> Tensor:
        """[m] in how many (micro-)batches each task was left out because something about it was not finite."""
        return self.memory.skipped

    @property
    def state(self) -> State:
        """The rule's state, by name."""
        return self.memory.state

    @property
    def steps(self) -> int:
        """How many steps have been taken."""
        return self.memory.steps

    def end_epoch(self) -> None:
        """Tell rules that count epochs (DWA, IGB, STCH) that one is over."""
        self.memory.write(self.rule.end_epoch(self.state))

    def after_step(self, losses: Losses) -> None:
        """For FAMO, after `optimizer.step()`: the losses of the same batch again, as `backward` got them before.

        They may come without a graph, and some tasks may be missing. Without this call the next step's losses serve.
        """
        if "after_step" not in self.rule.uses:
            raise ValueError(f"after_step is not used by {self.rule.name!r}; leave it out")
        values, ok = arguments.loss_values(losses, self.tasks)
        if self._reduction is not no_reduction:
            values, ok = mean_where(values, ok, self._reduction)
        self.memory.write(self.rule.after_step(self.state, values, ok))

    def add_task(self, name: str) -> None:
        """One task more, after the others. It starts as in a new balancer, with the mean weight; the others go on."""
        take_tasks(self, (*self.tasks, name))

    def remove_task(self, name: str) -> None:
        """One task less. What is known of the others stays, and they share its weight in proportion."""
        if name not in self.tasks:
            raise ValueError(f"unknown task {name!r}; the tasks are {list(self.tasks)}")
        take_tasks(self, tuple(task for task in self.tasks if task != name))

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        assign: bool = False,
        *,
        tasks: Literal["same", "match"] = "same",
    ) -> Any:
        """Take a saved state. `tasks="match"`: also one of other tasks, or in another order; tasks go by their names.

        Tasks that the state does not know start as in a new balancer, those that only the state knows are left aside.
        """
        if tasks not in ("same", "match"):
            raise ValueError(f"tasks must be 'same' or 'match', found {tasks!r}")
        if tasks == "match" and not self.memory.same_tasks(state_dict.get("memory._extra_state")):
            return load_matching(self, state_dict)
        if strict:
            check_keys(self, state_dict)
        return super().load_state_dict(state_dict, strict, assign)

    def diagnose(self, losses: Mapping[str, Any] | None = None) -> "Report":
        """What training itself shows of the labels: a report that prints as a table, at any time.

        It reads what the default method keeps anyway: steps cost nothing. Training losses cannot tell hard from noisy,
        nor see labels that the network has memorised: verdicts are "clean", "suspect" or "not learned yet", without a
        noise rate. `excessmtl.diagnose` says more, from held-out predictions.

        Args:
            losses: Task -> its loss module. Where that has a `noise`, an estimate of its own, the report shows it.
        """
        from excessmtl.diagnosis.live import live_report

        return live_report(self.tasks, self.rule.progress(self.state), self.rule.name, losses)

    def discard(self) -> None:
        """Forget the micro-batches of a step that is not going to be finished (`accumulate=True`, then no last one)."""
        self._pending.clear()
        self._losses_so_far = None

    @property
    def accumulating(self) -> bool:
        """Whether micro-batches wait for the last one of their step."""
        return self._losses_so_far is not None

    @property
    def device(self) -> torch.device:
        """Where the shared parameters are; the state follows them at the next step."""
        return self._shared.device

    @property
    def shared_parameters(self) -> list[Tensor]:
        """All shared parameters, frozen ones included."""
        return self._shared.parameters

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.weights.device
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.weights.device != before:
            self.engine.forget()
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self.memory.options = self._options()  # as they are now: attributes such as `scale` may have been changed
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.accumulating:
            warn(
                "the state is saved between two micro-batches of a step, and what they have accumulated is not part "
                "of it; save it after the last one"
            )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        mine = prefix + "memory."
        saved = {key[len(mine) :]: value for key, value in state_dict.items() if key.startswith(mine)}
        if prefix:  # of a model's state, what stands under the balancer's name
            check_keys(self, state_dict, prefix)
        self.memory.options = self._options()
        if saved or not prefix:  # else: a model's checkpoint from before it had a balancer, reported as missing keys
            self.memory.check(saved)
        self.discard()
        super()._load_from_state_dict(state_dict, prefix, *rest)


# What a compiled training step calls: the compiler cannot follow a search of autograd's graph.
_backward: Callable[..., Any] = outside_compiled_code(Balancer.backward)
_forward: Callable[..., Any] = outside_compiled_code(Balancer.forward)
