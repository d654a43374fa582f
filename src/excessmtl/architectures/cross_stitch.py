"""Cross-stitch networks: an encoder for each task, whose features are mixed after every stage.

Misra et al., CVPR 2016, https://arxiv.org/abs/1604.03539. After stage l, with a learned matrix A of the stage:
    x_t <- sum_s A_ts x_s
One matrix for all channels of a stage (the paper also has one per channel). It starts near the identity: 0.9 for a
task's own features, the rest in equal parts for those of the others. Every encoder is reached by every task, so all of
them are shared; the heads belong to their task. The features of all tasks must have one shape.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from excessmtl.architectures.base import Make, MultiTask, mix

_OWN = 0.9


class CrossStitch(MultiTask):
    """An encoder for each task, mixed after every stage.

    Args:
        stages: For each stage, what makes it; called once for each task.
        heads: Task -> head, on the features of the last stage.
    """

    def __init__(self, stages: Sequence[Make], heads: Mapping[str, nn.Module]) -> None:
        super().__init__(heads)
        if not stages:
            raise ValueError("stages is empty; give what makes each stage of an encoder")
        self.trunk = _Stitched(stages, len(self.tasks))

    @property
    def shared(self) -> nn.Module:
        """All encoders and what mixes them."""
        return self.trunk

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """The features of each task after the last mixture."""
        features = dict(zip(self.tasks, self.trunk(inputs), strict=True))
        return {task: features[task] for task in tasks}


class _Stitched(nn.Module):
    def __init__(self, stages: Sequence[Make], tasks: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.ModuleList(make() for _ in range(tasks)) for make in stages)
        off = (1 - _OWN) / max(tasks - 1, 1)
        start = torch.full((tasks, tasks), off).fill_diagonal_(_OWN if tasks > 1 else 1.0)
        self.mixtures = nn.ParameterList(nn.Parameter(start.clone()) for _ in stages)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The features of every task."""
        features: tuple[Tensor, ...] = (inputs,) * len(self.mixtures[0])
        for encoders, mixture in zip(self.stages, self.mixtures, strict=True):
            outputs = [encoder(own) for encoder, own in zip(encoders.children(), features, strict=True)]
            features = tuple(mix(weights, outputs) for weights in mixture)
        return features
