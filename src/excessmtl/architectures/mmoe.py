"""Multi-gate mixture of experts: every task mixes the same experts by a gate of its own.

Ma et al., KDD 2018, https://doi.org/10.1145/3219819.3220007 (Eq. 5-7):
    f_t(x) = sum_k softmax(W_t x)_k expert_k(x)
The experts are shared; gates and heads belong to their task.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from excessmtl.architectures.base import Experts, Gate, Make, MultiTask, mix


class MMoE(MultiTask):
    """Experts mixed by a gate for each task.

    Args:
        expert: Makes an expert, from the inputs to features; called once for each.
        heads: Task -> head, on the features.
        features: How many numbers an input sample has, for the gates.
        experts: How many.
    """

    def __init__(self, expert: Make, heads: Mapping[str, nn.Module], features: int, experts: int = 4) -> None:
        super().__init__(heads)
        self.experts = Experts(expert, experts)
        self.gates = nn.ModuleDict({task: Gate(features, experts) for task in self.tasks})

    @property
    def shared(self) -> nn.Module:
        """The experts."""
        return self.experts

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """What each task's gate makes of the experts."""
        outputs = self.experts(inputs)
        return {task: mix(self.gates[task](inputs), outputs) for task in tasks}
