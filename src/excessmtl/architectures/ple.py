"""Progressive layered extraction: several levels of shared and own experts, which separate more and more.

Tang et al., RecSys 2020, https://doi.org/10.1145/3383313.3412236 (Sec. 4.2). In every level but the last a gate for
each task mixes its own experts with the shared ones, and a further gate mixes the experts of *all* tasks into the
shared input of the next level. The last level is a CGC. What several tasks reach is shared: all levels but the last,
and the shared experts of the last. Its own experts and gates, and the heads, belong to their task.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from excessmtl.architectures.base import Experts, Gate, Make, MultiTask, mix

_COMMON = 0
"""Place of the shared input among the inputs of a level; that of task i is i + 1."""


class PLE(MultiTask):
    """Levels of shared and own experts.

    Args:
        levels: For each level, what makes one of its experts, from the outputs of the level before.
        heads: Task -> head, on the features of the last level.
        features: For each level, how many numbers a sample has that enters it, for the gates.
        shared_experts: How many all tasks share, in every level.
        own_experts: How many each task has, in every level.
    """

    def __init__(
        self,
        levels: Sequence[Make],
        heads: Mapping[str, nn.Module],
        features: Sequence[int],
        shared_experts: int = 2,
        own_experts: int = 1,
    ) -> None:
        super().__init__(heads)
        if len(levels) < 1 or len(features) != len(levels):
            raise ValueError(f"features must have one number for each of the {len(levels)} levels, found {features!r}")
        counts = len(self.tasks), shared_experts, own_experts
        lower = [_Level(make, size, *counts) for make, size in zip(levels[:-1], features[:-1], strict=True)]
        self.trunk = _Trunk(lower, Experts(levels[-1], shared_experts))
        self.own_experts = nn.ModuleDict({task: Experts(levels[-1], own_experts) for task in self.tasks})
        self.gates = nn.ModuleDict({task: Gate(features[-1], shared_experts + own_experts) for task in self.tasks})

    @property
    def shared(self) -> nn.Module:
        """All that several tasks reach."""
        return self.trunk

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """The last level, of each task."""
        entering, common = self.trunk(inputs, len(self.tasks))
        features = {}
        for place, task in enumerate(self.tasks):
            if task in tasks:
                own = entering[place]
                features[task] = mix(self.gates[task](own), (*self.own_experts[task](own), *common))
        return features


class _Level(nn.Module):
    """The shared input and one for each task, to the same of the next level."""

    def __init__(self, make: Make, features: int, tasks: int, shared_experts: int, own_experts: int) -> None:
        super().__init__()
        self.shared_experts = Experts(make, shared_experts)
        self.own_experts = nn.ModuleList(Experts(make, own_experts) for _ in range(tasks))
        self.gates = nn.ModuleList(Gate(features, shared_experts + own_experts) for _ in range(tasks))
        self.common_gate = Gate(features, shared_experts + tasks * own_experts)

    def forward(self, entering: Sequence[Tensor]) -> list[Tensor]:
        shared_input, *own_inputs = entering
        common = self.shared_experts(shared_input)
        own = [experts(own_input) for experts, own_input in zip(self.own_experts, own_inputs, strict=True)]
        every = [output for outputs in own for output in outputs]
        leaving = [mix(self.common_gate(shared_input), (*every, *common))]
        for gate, own_input, outputs in zip(self.gates, own_inputs, own, strict=True):
            leaving.append(mix(gate(own_input), (*outputs, *common)))
        return leaving


class _Trunk(nn.Module):
    """All levels but the last, and the shared experts of the last."""

    def __init__(self, levels: Sequence[nn.Module], experts: Experts) -> None:
        super().__init__()
        self.levels, self.experts = nn.ModuleList(levels), experts

    def forward(self, inputs: Tensor, tasks: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(what enters the last level for each task, the outputs of its shared experts)"""
        entering: Sequence[Tensor] = [inputs] * (tasks + 1)
        for level in self.levels:
            entering = level(entering)
        return tuple(entering[_COMMON + 1 :]), self.experts(entering[_COMMON])
