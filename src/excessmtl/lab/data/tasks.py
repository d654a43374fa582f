"""What a task is: how many numbers its head gives, its loss, its metrics, and what bad labels look like."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn

IGNORED = -1
"""The label of pixels whose class is unknown."""
PLAIN = "plain"
LOSSES = (PLAIN, "robust", "gce", "symmetric", "bootstrapped", "huber", "general")
"""The names of losses on the command line."""
SHARE = "share"
"""The unit of a metric between 0 and 1; tables show it in percent."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, target) -> the mean loss of a batch, a scalar."""
Measure = Callable[["Task", Tensor], "Accumulator"]
"""(task, its clean training target) -> an empty accumulator."""
Disturb = Callable[[Tensor, "Draw"], Tensor]
"""(clean target, random choices) -> the target with bad labels; the given one is left as it is."""


class Accumulator(Protocol):
    """Takes the batches of a split, then gives a number or a vector of them. A `torchmetrics.Metric` is one."""

    def to(self, device: Any) -> Any:
        """The same on this device."""

    def update(self, output: Tensor, target: Tensor) -> None:
        """Add a batch."""

    def compute(self) -> Tensor:
        """From all batches so far."""


@dataclass(frozen=True)
class Metric:
    """A number that judges a task.

    Args:
        name: what tables call it.
        measure: makes the accumulator; any `torchmetrics.Metric` will do. Metrics with the same one share it.
        unit: what the number is measured in: "share" (0 to 1, shown in percent), "dB", "kg"; "" for none.
        higher_is_better: its direction.
        part: which of the numbers that the accumulator computes.
    """

    name: str
    measure: Measure
    unit: str
    higher_is_better: bool
    part: int = 0


@dataclass(frozen=True)
class Kind:
    """What tasks of one kind have in common.

    Args:
        loss: (output, target) -> mean loss of the batch.
        metrics: everything that is measured on validation and test data.
        score: the name of the metric that stands for the task.
        disturb: how label noise changes the targets; None: these targets cannot be disturbed.
        variants: other losses by the name that `--loss` takes; each makes a module (output, target) -> mean loss.
    """

    loss: Loss
    metrics: tuple[Metric, ...]
    score: str
    disturb: Disturb | None = None
    variants: Mapping[str, Callable[[], nn.Module]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if self.score not in names or len(set(names)) < len(names):
            raise ValueError(f"score must name one of the metrics, each of them once; found {self.score!r} and {names}")

    @property
    def primary(self) -> Metric:
        """The metric that `score` names."""
        return next(metric for metric in self.metrics if metric.name == self.score)


@dataclass(frozen=True)
class Task:
    """One task: its name, how many numbers its head gives (per pixel for maps), and its kind."""

    name: str
    outputs: int
    kind: Kind


@dataclass(frozen=True)
class Draw:
    """The random choices behind the label noise of one task."""

    level: float
    """The share of examples that are hit."""
    outputs: int
    """Of the task."""
    exclude_true: bool
    """Whether a drawn class is never the true one."""
    chosen: Generator
    """Decides which examples are hit."""
    values: Generator
    """Decides what they get."""
    directions: Generator | None = None
    """Decides which functions of the inputs noise follows; the same for all splits."""
    inputs: Tensor | None = None
    """Of the task, where the noise depends on them."""

    def examples(self, target: Tensor) -> Tensor:
        """Indices of exactly the given share of the labelled examples, rounded."""
        return self.first(torch.randperm(len(target), generator=self.chosen), target)

    def first(self, order: Tensor, target: Tensor) -> Tensor:
        """The given share of the labelled examples, the first ones in this order."""
        present = labelled(target)
        order = order if present is None else order[present.cpu()[order]]
        return order[: round(self.level * len(order))].to(target.device)

    def pixels(self, known: Tensor) -> Tensor:
        """A mask: each of the known pixels with probability `level`."""
        return known & (torch.rand(known.shape, generator=self.chosen) < self.level).to(known.device)

    def normal(self, shape: torch.Size, like: Tensor) -> Tensor:
        """Standard normal numbers of the type and device of `like`."""
        return torch.randn(shape, generator=self.values).to(like)

    def projection(self) -> Tensor:
        """[n] numbers of mean 0 and deviation 1: a random linear function of the inputs, another one each time."""
        if self.inputs is None or self.directions is None:
            raise ValueError("noise that depends on the inputs needs them as a tensor; choose another noise_kind")
        direction = torch.randn(self.inputs[0].numel(), generator=self.directions).to(self.inputs.device)
        # In blocks: 60,000 pictures as floating-point numbers would take much memory.
        parts = [block.flatten(1).float() @ direction for block in torch.split(self.inputs, 4096)]
        values = torch.cat(parts).double()
        return (values - values.mean()) / values.std(correction=0).clamp(min=1e-12)

    def classes(self, truth: Tensor, count: int) -> Tensor:
        """For each true class one of `count` classes, drawn uniformly."""
        if count - self.exclude_true < 1:
            raise ValueError("exclude_true leaves no class to draw where there is only one")
        drawn = torch.randint(count - self.exclude_true, truth.shape, generator=self.values).to(truth)
        return drawn + (drawn >= truth) if self.exclude_true else drawn


def known(target: Tensor) -> Tensor:
    """The targets without missing labels."""
    present = labelled(target)
    return target if present is None else target[present]


def labelled(target: Tensor) -> Tensor | None:
    """[n] bool: the examples whose target has no NaN; None where all are labelled."""
    if not target.is_floating_point():
        return None
    missing = target.isnan().flatten(1).any(1) if target.ndim > 1 else target.isnan()
    return ~missing if bool(missing.any()) else None
