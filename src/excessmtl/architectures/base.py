"""What all architectures have in common: inputs to outputs by task, and which parameters are shared."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

Make = Callable[[], nn.Module]
"""Makes a fresh module at every call: an encoder, an expert, a stage."""


class MultiTask(nn.Module):
    """A network for several tasks. Subclasses say what the features of each task are, and what is shared.

    Args:
        heads: Task -> module from the features of the architecture to the output of the task.
    """

    def __init__(self, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        if not heads:
            raise ValueError("heads is empty; give a module for each task, by name")
        self.heads = nn.ModuleDict(dict(heads))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(self.heads)

    @property
    def shared(self) -> nn.Module | list[nn.Module]:
        """What several tasks share: give it to `excessmtl.create(..., shared=model.shared)`."""
        raise NotImplementedError

    def private_parameters(self) -> list[nn.Parameter]:
        """The parameters of single tasks: all that are not in `shared`."""
        parts = [self.shared] if isinstance(self.shared, nn.Module) else self.shared
        shared = {id(parameter) for part in parts for parameter in part.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in shared]

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """Task -> what its head takes."""
        raise NotImplementedError

    def forward(self, inputs: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Task -> output. Inputs by task, where tasks have inputs of their own, give the outputs of these tasks."""
        if isinstance(inputs, Tensor):
            return {task: self.heads[task](z) for task, z in self.features(inputs, self.tasks).items()}
        unknown = [task for task in inputs if task not in self.heads]
        if unknown:
            raise ValueError(f"inputs names unknown task {unknown[0]!r}; the tasks are {list(self.tasks)}")
        return {task: self.heads[task](self.features(own, (task,))[task]) for task, own in inputs.items()}


class Experts(nn.Module):
    """Several modules of one kind beside each other. Their outputs are the representation that tasks share."""

    def __init__(self, make: Make, count: int) -> None:
        super().__init__()
        check_count("experts", count)
        self.experts = nn.ModuleList(make() for _ in range(count))

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The output of every expert."""
        return tuple(expert(inputs) for expert in self.experts)


class Gate(nn.Module):
    """Softmax weights of several experts, from the inputs as a vector."""

    def __init__(self, features: int, experts: int) -> None:
        super().__init__()
        check_count("features", features)
        self.scores = nn.Linear(features, experts)

    def forward(self, inputs: Tensor) -> Tensor:
        """[samples, experts]"""
        return self.scores(inputs.flatten(1)).softmax(1)  # type: ignore[no-any-return]


def mix(weights: Tensor, outputs: Iterable[Tensor]) -> Tensor:
    """The weighted sum of the outputs: one weight each, or one per sample, [samples, outputs]."""
    terms = []
    for weight, output in zip(weights.unbind(-1), outputs, strict=True):
        terms.append(output * weight.reshape(weight.shape + (1,) * (output.ndim - weight.ndim)))
    return torch.stack(terms).sum(0)


def check_count(name: str, value: object, least: int = 1) -> None:
    """A ValueError for what is not a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, found {value!r}")
