"""DSelect-k: every task uses k of the experts, chosen by a smooth gate that becomes exactly sparse.

Hazimeh et al., NeurIPS 2021, https://arxiv.org/abs/2106.03760. Experts have binary numbers. A selector has one value
z_b per bit, and gives expert e the product over the bits of S(z_b) or 1 - S(z_b), as the bit of e is 1 or 0:
    S(z) = 0 for z <= -c/2,   1 for z >= c/2,   -2 z^3 / c^3 + 3 z / (2 c) + 1/2 between             (smooth step)
    gate = sum over k selectors of softmax(a)_i selector_i
The gates do not depend on the sample (the paper's static gates). Add `model.entropy()`, times a small factor, to the
losses: it is zero where every selector has chosen one expert, and makes them choose.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from excessmtl.architectures.base import Experts, Make, MultiTask, check_count, mix


class DSelectK(MultiTask):
    """k of the experts for each task.

    Args:
        expert: Makes an expert, from the inputs to features; called once for each.
        heads: Task -> head, on the features.
        experts: How many: a power of two.
        selected: k, at most so many for each task.
        width: c of the smooth step: the smaller, the sooner a selector has chosen.
    """

    def __init__(
        self, expert: Make, heads: Mapping[str, nn.Module], experts: int = 4, selected: int = 2, width: float = 1.0
    ) -> None:
        super().__init__(heads)
        check_count("selected", selected)
        check_count("experts", experts, 2)
        if experts & (experts - 1):
            raise ValueError(f"experts must be a power of two, found {experts}; take {1 << experts.bit_length()}")
        if not width > 0:
            raise ValueError(f"width must be positive, found {width}")
        self.experts = Experts(expert, experts)
        self.gates = nn.ModuleDict({task: _Selectors(experts, selected, width) for task in self.tasks})

    @property
    def shared(self) -> nn.Module:
        """The experts."""
        return self.experts

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """What each task has selected of the experts."""
        outputs = self.experts(inputs)
        return {task: mix(self.gates[task](), outputs) for task in tasks}

    def entropy(self) -> Tensor:
        """The entropy of all selectors of all tasks: a penalty that makes them choose."""
        shares = torch.cat([gate.selectors() for gate in self.gates.values()])  # type: ignore[operator]
        return -(shares * shares.clamp(min=1e-12).log()).sum()


class _Selectors(nn.Module):
    """The gate of one task."""

    bits: Tensor

    def __init__(self, experts: int, selected: int, width: float) -> None:
        super().__init__()
        count = experts.bit_length() - 1
        numbers = torch.arange(experts)[:, None] >> torch.arange(count)
        self.register_buffer("bits", (numbers & 1).bool())
        # Nearly undecided, and not all alike: equal selectors would stay equal.
        self.codes = nn.Parameter((torch.rand(selected, count) - 0.5) * width / 50)
        self.scores = nn.Parameter(torch.zeros(selected))
        self.width = width

    def selectors(self) -> Tensor:
        """[k, experts], each row with the sum one."""
        z = (self.codes / self.width).clamp(-0.5, 0.5)
        step = -2 * z**3 + 1.5 * z + 0.5
        chosen: Tensor = torch.where(self.bits, step[:, None], 1 - step[:, None]).prod(-1)
        return chosen

    def forward(self) -> Tensor:
        """[experts]"""
        return self.scores.softmax(0) @ self.selectors()
