"""A small network that a rule trains, and a guard against reads of device values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.overrides import TorchFunctionMode

from excessmtl.balancer import Balancer
from excessmtl.methods.base import Decision, Factory, State, build
from excessmtl.methods.observation import Observation
from excessmtl.step.result import Step

OUTPUTS = {"a": 3, "b": 1, "c": 2, "d": 2, "e": 1}
"""Task -> outputs of its head."""
KINDS = {task: "classification" if task in "ad" else "regression" for task in OUTPUTS}
TASKS = tuple("abc")
Losses = dict[str, Tensor]
Update = Callable[[State, Observation], Decision]
Watch = Callable[[Update, State, Observation], Decision]


class Network(nn.Module):
    """A trunk and five heads; `scale` multiplies the loss of task "b"."""

    def __init__(self, seed: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(seed)
        self.trunk = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh())
        self.heads = nn.ModuleDict({task: nn.Linear(8, outputs) for task, outputs in OUTPUTS.items()})
        self.scale = scale
        with torch.no_grad():
            for parameter in self.parameters():
                bound = parameter.shape[-1] ** -0.5
                parameter.copy_(bound * (2 * torch.rand(parameter.shape, generator=draws) - 1))

    def losses(self, seed: int, batch: int = 6, tasks: Sequence[str] = TASKS) -> tuple[Tensor, Losses]:
        """The representation of a batch and the tasks' losses, the same for the same seed."""
        x, targets = self.batch(seed, batch)
        z = self.trunk(x)
        losses: Losses = {}
        for task in tasks:
            loss = cross_entropy if KINDS[task] == "classification" else mse_loss
            losses[task] = (self.scale if task == "b" else 1.0) * loss(self.heads[task](z), targets[task])
        return z, losses

    @staticmethod
    def batch(seed: int, size: int = 6) -> tuple[Tensor, dict[str, Tensor]]:
        """Inputs and labels, the same for the same seed."""
        draws = torch.Generator().manual_seed(seed)
        x, targets = torch.randn(size, 5, generator=draws), {}
        for task, outputs in OUTPUTS.items():
            classes = torch.randint(0, outputs, (size,), generator=draws)
            numbers = torch.randn(size, outputs, generator=draws)
            targets[task] = classes if KINDS[task] == "classification" else numbers
        return x, targets


class Training:
    """A network and a balancer with the rule, to take steps with; all that the rule declares in `uses` is given."""

    def __init__(
        self,
        rule: Factory,
        options: Mapping[str, Any],
        tasks: Sequence[str] = TASKS,
        seed: int = 0,
        watch: Watch | None = None,
        **of_balancer: Any,
    ) -> None:
        self.network, self.seed, self.drawn = Network(seed), seed, False
        made = build(rule, options, "the rule")
        given: dict[str, Any] = dict.fromkeys(made.places - set(options), "b" if "b" in tasks else tasks[0])
        if getattr(made, "layers", ()) is None:  # the last layers of the heads
            given |= {"layers": {task: self.network.heads[task] for task in tasks}}
            given |= {"kinds": {task: KINDS[task] for task in tasks}}
        self.balancer = Balancer(replace(made, **given), tasks, self.network.trunk, **of_balancer)
        update = self.balancer.rule.update

        def watched(state: State, seen: Observation) -> Decision:
            def stream() -> Generator:
                self.drawn = True
                return seen.random_stream()

            shown = replace(seen, random_stream=stream)
            return update(state, shown) if watch is None else watch(update, state, shown)

        object.__setattr__(self.balancer.rule, "update", watched)  # rules are frozen

    def step(
        self, number: int, change: Callable[[Losses], Losses] = dict, at: bool = False, scalar: bool = False
    ) -> Step:
        """One step on the batch of this number, which also ends an epoch where it is odd; no parameter moves."""
        rule, balancer, inputs = self.balancer.rule, self.balancer, dict[str, Any]()
        batch = 10_000 * self.seed + number
        places = list(OUTPUTS)
        self.network.zero_grad()
        if "validation_losses" in rule.uses:
            inputs["validation_losses"] = self.network.losses(batch + 1000, tasks=balancer.tasks)[1]
        if "metrics" in rule.uses:
            inputs["metrics"] = {task: 0.2 + (3 * number + places.index(task)) % 7 / 10 for task in balancer.tasks}
        if "targets" in rule.uses:
            inputs["targets"] = {task: self.network.batch(batch)[1][task] for task in balancer.tasks}
        z, losses = self.network.losses(batch, tasks=balancer.tasks)
        losses = change(losses)
        if scalar:
            balancer(losses, at=z if at else None, **inputs).backward()
        else:
            balancer.backward(losses, at=z if at else None, **inputs)
        if "after_step" in rule.uses:
            balancer.after_step({task: loss.detach() * (0.9 - places.index(task) / 5) for task, loss in losses.items()})
        if number % 2:
            balancer.end_epoch()
        assert balancer.last_step is not None
        return balancer.last_step

    def gradients(self, part: str = "") -> list[Tensor]:
        """Those of the network, or of its `trunk` or `heads`; zero where there is none."""
        named = [(name, p) for name, p in self.network.named_parameters() if name.startswith(part)]
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for _, p in named]


class HostReads(TorchFunctionMode):
    """Raises where a value is read on the host, which would wait for the device."""

    CONVERSIONS = frozenset({"item", "tolist", "numpy", "cpu", "__array__", "__bool__", "__float__", "__int__"})
    SEARCHES = frozenset({"nonzero", "argwhere", "is_nonzero", "masked_select", "unique", "unique_consecutive"})
    OTHERS = frozenset({"equal", "allclose", "__index__", "__contains__", "__repr__", "__format__"})
    READS = CONVERSIONS | SEARCHES | OTHERS

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        index = args[1] if name == "__getitem__" else ()
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, Tensor) and part.dtype == torch.bool for part in parts):
            name = "an index by a bool tensor"
        elif name not in self.READS:
            return function(*args, **(kwargs or {}))
        raise AssertionError(
            f"update reads a value on the host ({name}), which waits for the device; compute with tensors, or declare "
            "uses_host = True"
        )
