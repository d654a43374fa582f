"""Learning to branch: a tree of stages in which every node, and every task, learns where it branches off.

Guo et al., "Learning to Branch for Multi-Task Learning", ICML 2020, https://arxiv.org/abs/2006.01895. A level has
several copies of a stage. A copy takes its input from the copies of the level before, chosen by Gumbel-softmax:
    input of node c = sum_p d_cp output of node p,   d_c = softmax((logits_c + Gumbel noise) / temperature)
and a task takes its features from the last level in the same way. In evaluation the most likely parent is taken alone.
Lower `model.temperature` while training (the paper: from 10 towards 0), after a while of training without it. The
stages and the choices between levels are shared; the choice of a task and its head are its own. The paper first trains
the weights and the choices in turns, then trains the chosen tree again from the start.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from excessmtl.architectures.base import Make, MultiTask, check_count, mix


class LTB(MultiTask):
    """A tree of stages that learns where tasks branch off.

    Args:
        stages: For each level, what makes one of its copies.
        heads: Task -> head, on the features of the last level.
        copies: How many each level has; the first level of the paper's tree has one.
        temperature: Of the Gumbel-softmax; an attribute that may be changed while training.
    """

    def __init__(
        self, stages: Sequence[Make], heads: Mapping[str, nn.Module], copies: int = 2, temperature: float = 10.0
    ) -> None:
        super().__init__(heads)
        if not stages:
            raise ValueError("stages is empty; give what makes each level of the tree")
        check_count("copies", copies)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, found {temperature}")
        self.trunk = _Tree(stages, copies)
        self.choices = nn.ParameterDict({task: nn.Parameter(torch.zeros(copies)) for task in self.tasks})
        self.temperature = temperature

    @property
    def shared(self) -> nn.Module:
        """The tree."""
        return self.trunk

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """What each task takes from the last level."""
        outputs = self.trunk(inputs, self.temperature)
        return {task: mix(_choose(self.choices[task], self.temperature, self.training), outputs) for task in tasks}

    def branches(self) -> dict[str, tuple[int, ...]]:
        """Task -> the copy it takes in every level, from the first to the last."""
        paths = {}
        for task in self.tasks:
            path = [int(self.choices[task].argmax())]
            for logits in reversed(list(self.trunk.choices)):
                path.insert(0, int(logits[path[0]].argmax()))
            paths[task] = tuple(path)
        return paths


class _Tree(nn.Module):
    def __init__(self, stages: Sequence[Make], copies: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.ModuleList(make() for _ in range(copies)) for make in stages)
        self.choices = nn.ParameterList(nn.Parameter(torch.zeros(copies, copies)) for _ in stages[1:])

    def forward(self, inputs: Tensor, temperature: float) -> tuple[Tensor, ...]:
        """The outputs of the last level."""
        features = tuple(stage(inputs) for stage in self.levels[0].children())
        for level, logits in zip(list(self.levels)[1:], self.choices, strict=True):
            chosen = _choose(logits, temperature, self.training)
            features = tuple(stage(mix(own, features)) for stage, own in zip(level.children(), chosen, strict=True))
        return features


def _choose(logits: Tensor, temperature: float, training: bool) -> Tensor:
    """Weights of the parents over the last dimension: drawn in training, the most likely one otherwise."""
    if training:
        return F.gumbel_softmax(logits, temperature, dim=-1)
    return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits)
