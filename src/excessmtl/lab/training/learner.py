"""Network, optimiser and balancer of a run: one training step, and predictions."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

import excessmtl
from excessmtl.balancer import Balancer
from excessmtl.create import BALANCER_OPTIONS, with_likelihoods
from excessmtl.lab.data.base import Benchmark, Targets
from excessmtl.lab.data.find import import_path, is_import_path
from excessmtl.lab.data.tasks import IGNORED, PLAIN, Loss, Task, labelled
from excessmtl.lab.runs.config import Resolved, check_method
from excessmtl.lab.training.batches import Batch, Inputs, prepared
from excessmtl.lab.training.model import SingleTaskModels, labels, last_layers, make_network
from excessmtl.lab.training.processes import parallel
from excessmtl.losses.estimate import learns_with_others
from excessmtl.losses.missing_labels import by_task
from excessmtl.losses.together import StackableLoss
from excessmtl.step.result import Step

Losses = dict[str, Tensor]
Masks = dict[str, Tensor]
_OPTIMISERS: dict[str, type[Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def task_losses(tasks: Sequence[Task], name: str) -> dict[str, Loss]:
    """Task -> the loss of this name where its kind has one, else its own."""
    if name != PLAIN and not any(name in task.kind.variants for task in tasks):
        known = sorted({PLAIN, *(variant for task in tasks for variant in task.kind.variants)})
        raise ValueError(f"loss {name!r} is not there for any of these tasks; choose from {', '.join(known)}")
    return {task.name: task.kind.variants.get(name, lambda own=task.kind.loss: own)() for task in tasks}


class Learner:
    """What learns in a run. `fabric`: device, precision and processes; not launched yet."""

    def __init__(self, config: Resolved, benchmark: Benchmark, fabric: Fabric) -> None:
        self.config, self.benchmark, self.fabric = config, benchmark, fabric
        self.tasks = tuple(task.name for task in benchmark.tasks)
        self.losses = task_losses(benchmark.tasks, config.loss)
        torch.manual_seed(config.seed)
        self.network = make_network(config, benchmark)
        self._layers = last_layers(config, benchmark, self.network)
        self.balancer: Balancer | None = self._balancer()
        self.incomplete: frozenset[str] = frozenset()

    @cached_property
    def modules(self) -> nn.ModuleDict:
        """The losses that have a state."""
        return nn.ModuleDict({task: loss for task, loss in self.losses.items() if isinstance(loss, nn.Module)})

    def move(self, incomplete: frozenset[str]) -> None:
        """To the device, now that the processes are there. `incomplete`: tasks that lack labels."""
        self.incomplete = incomplete
        self.network.to(self.fabric.device)
        self.modules.to(self.fabric.device)
        self.module = parallel(self.network, self.fabric)
        made = self.fabric.setup_optimizers(make_optimiser(self.config, self.network.parameters(), self.fabric.device))
        assert not isinstance(made, tuple)  # of one, one is made
        self.optimiser = made

    @property
    def holds_out(self) -> bool:
        """Whether the method looks at validation losses."""
        return self.balancer is not None and "validation_losses" in self.balancer.rule.uses

    @property
    def scaler(self) -> Any:
        """The gradient scaler of 16-bit precision, or None."""
        return getattr(self.fabric.strategy.precision, "scaler", None)

    def step(self, batch: Batch, generator: Generator, held_out: Iterator[Losses] | None = None) -> Step:
        """One step of the optimiser on one batch; `generator` draws the augmentation."""
        inputs, targets = prepared(batch, self.benchmark), batch.targets
        if self.benchmark.augment is not None:
            inputs, targets = self.benchmark.augment(inputs, targets, generator)
        self.optimiser.zero_grad()
        losses, masks = self._losses(self._outputs(self.module, inputs), targets)
        if not losses:  # no label for any task
            return self._unweighted({})
        if self.balancer is None:
            empty = {task for task, present in masks.items() if not present.any()}
            # Networks without a common parameter: the gradient of the sum is each one's own.
            self.fabric.backward(torch.stack(list(losses.values())).sum())
            result = self._unweighted({task: losses[task] for task in losses if task not in empty})
        else:
            ahead = None if held_out is None else partial(next, held_out)
            known = labels(targets, self._layers["kinds"]) if self._layers else None
            result = self.balancer.backward(
                losses, mask=masks or None, scaler=self.scaler, validation_losses=ahead, targets=known
            )
        self.optimiser.step()
        return result

    def set_learning_rate(self, step: int, steps: int) -> None:
        """That of the step with this number, of `steps` in all."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.config, step, steps)

    def predict(self, inputs: Inputs) -> Mapping[str, Tensor]:
        """Task -> output of the network, outside of training."""
        return self._outputs(self.network, inputs)

    def losses_of(self, batch: Batch) -> Losses:
        """Task -> loss on a batch that is not trained on."""
        self.modules.eval()  # losses that learn do not learn from it
        try:
            return self._losses(self.predict(prepared(batch, self.benchmark)), batch.targets)[0]
        finally:
            self.modules.train()

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on as if nothing had happened."""
        on_cuda = self.fabric.device.type == "cuda"
        return {
            "model": self.network.state_dict(),
            "optimiser": self.optimiser.optimizer.state_dict(),
            "balancer": None if self.balancer is None else self.balancer.state_dict(),
            "losses": self.modules.state_dict(),
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state() if on_cuda else None,
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self.network.load_state_dict(state["model"])
        self.optimiser.optimizer.load_state_dict(state["optimiser"])
        if self.balancer is not None:
            self.balancer.load_state_dict(state["balancer"])
        self.modules.load_state_dict(state["losses"])
        if state["scaler"] is not None and self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"])
        if state["cuda_random"] is not None and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_random"])

    def _balancer(self) -> Balancer | None:
        if isinstance(self.network, SingleTaskModels):
            return None
        options = {**self._layers, **self.config.options}
        if not is_import_path(self.config.method):
            options = with_likelihoods(self.config.method, options, self.losses)
        return make_balancer(self.config.method, self.tasks, self.network.shared, options)

    def _outputs(self, network: torch.nn.Module, inputs: Inputs) -> Mapping[str, Tensor]:
        with self.fabric.autocast():
            outputs = network(inputs)
        return {task: output.float() for task, output in outputs.items()}

    def _losses(self, outputs: Mapping[str, Tensor], targets: Targets) -> tuple[Losses, Masks]:
        """The losses of all tasks with labels in this batch, and which examples have one where some do not."""
        together = [task for task in targets if task not in self.incomplete and self._stackable(task)]
        losses, masks = self._together(together, outputs, targets), {}
        for task, target in targets.items():
            if task in losses:
                continue
            output, present = outputs[task], labelled(target) if task in self.incomplete else None
            if present is None:
                losses[task] = self.losses[task](output, target)
            elif present.any():
                losses[task], masks[task] = self.losses[task](output[present], target[present]), present
            elif self.fabric.world_size > 1:
                # Every process has to send a gradient through the same heads, or the others wait for it.
                losses[task], masks[task] = 0 * output.sum(), present
                if learns_with_others(self.losses[task]):
                    self.losses[task](output[present], target[present])
        return losses, masks

    def _stackable(self, task: str) -> bool:
        return isinstance(getattr(self.losses[task], "loss", None), StackableLoss)

    def _together(self, tasks: Sequence[str], outputs: Mapping[str, Tensor], targets: Targets) -> Losses:
        """The losses of these tasks, all of whose examples are labelled, by the operations of one where they can be."""
        if not tasks:
            return {}
        parts: dict[str, Any] = {task: self.losses[task] for task in tasks}
        ready = {task: parts[task].target(outputs[task], targets[task]) for task in tasks}
        own = {task: outputs[task] for task in tasks}
        return by_task(own, ready, tasks, {task: parts[task].loss for task in tasks}, IGNORED)[0]

    def _unweighted(self, losses: Losses) -> Step:
        """A step without weights; tasks without a loss have NaN."""
        nan = torch.full((len(self.tasks),), torch.nan, device=self.fabric.device)
        values = [losses[task].detach().float() if task in losses else nan[0] for task in self.tasks]
        return Step.of(self.tasks, nan, torch.stack(values), nan, torch.zeros_like(nan))


def make_optimiser(config: Resolved, parameters: Iterable[nn.Parameter], device: torch.device) -> Optimizer:
    """The optimiser of a run. On CUDA it works in one kernel, and Adam counts its steps on the device."""
    given: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if device.type == "cuda":
        given |= {"fused": True, **({} if config.optimiser == "sgd" else {"capturable": True})}
    own = dict(config.optimiser_options)
    taken = next((name for name in own if name in given), None)
    if taken is not None:
        raise ValueError(f"optimiser_options must not have {taken!r}; the run sets it (learning_rate, weight_decay)")
    try:
        return _OPTIMISERS[config.optimiser](parameters, **given, **own)
    except (TypeError, ValueError) as error:
        raise ValueError(f"optimiser_options {own} do not fit {config.optimiser!r}: {error}") from error


def learning_rate(config: Resolved, step: int, steps: int) -> float:
    """The learning rate of the step with this number, of `steps` in all.

    It rises linearly over the warm-up, so that the last step of it has the full rate; the cosine then falls from
    there to zero just after the last step.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


def make_balancer(
    name: str, tasks: Sequence[str], shared: nn.Module | list[nn.Module], options: Mapping[str, Any]
) -> Balancer:
    """The balancer, with options of the method and of `Balancer`; those that do not fit are refused."""
    check_method(name)
    try:
        if not is_import_path(name):
            return excessmtl.create(name, tasks=tasks, shared=shared, **options)
        made = import_path(name, "method")
        if not (isinstance(made, type) and callable(getattr(made, "update", None))):
            raise ValueError(f"method {name!r} must be a class derived from Rule (see CONTRIBUTING.md), found {made!r}")
        if not hasattr(made, "name"):  # `@method` gives a rule its name; without it, the path does
            made.name = name  # type: ignore[attr-defined]
        common = {key: options[key] for key in BALANCER_OPTIONS if key in options}
        rule = made(**{key: value for key, value in options.items() if key not in common})
        return Balancer(rule, tasks, shared, **common)
    except TypeError as error:
        raise ValueError(f"options {dict(options)} do not fit method {name!r}: {error}") from error
