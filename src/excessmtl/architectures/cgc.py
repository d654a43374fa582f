"""Customized gate control: experts that all tasks share, and experts of each task's own, mixed by a gate for each task.

Tang et al., RecSys 2020, https://doi.org/10.1145/3383313.3412236 (Sec. 4.1). The shared experts are what tasks share;
own experts, gates and heads belong to their task.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from excessmtl.architectures.base import Experts, Gate, Make, MultiTask, mix


class CGC(MultiTask):
    """Shared and own experts, mixed by a gate for each task.

    Args:
        expert: Makes an expert, from the inputs to features; called once for each.
        heads: Task -> head, on the features.
        features: How many numbers an input sample has, for the gates.
        shared_experts: How many all tasks share.
        own_experts: How many each task has.
    """

    def __init__(
        self,
        expert: Make,
        heads: Mapping[str, nn.Module],
        features: int,
        shared_experts: int = 2,
        own_experts: int = 1,
    ) -> None:
        super().__init__(heads)
        self.shared_experts = Experts(expert, shared_experts)
        self.own_experts = nn.ModuleDict({task: Experts(expert, own_experts) for task in self.tasks})
        self.gates = nn.ModuleDict({task: Gate(features, shared_experts + own_experts) for task in self.tasks})

    @property
    def shared(self) -> nn.Module:
        """The shared experts."""
        return self.shared_experts

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """What each task's gate makes of its own experts and the shared ones."""
        common = self.shared_experts(inputs)
        return {task: mix(self.gates[task](inputs), (*self.own_experts[task](inputs), *common)) for task in tasks}
