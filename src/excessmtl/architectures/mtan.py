"""MTAN: one encoder, and for each task attention masks on its features, stage by stage.

Liu et al., "End-to-End Multi-Task Learning with Attention", CVPR 2019, https://arxiv.org/abs/1803.10704 (Eq. 1-2). With
u_l the features of stage l and p_t,l those of task t:
    a_t,l = h(g([u_l, f_l(p_t,l-1)])),   p_t,l = a_t,l * u_l
g is a 1 x 1 convolution with batch normalisation and ReLU, h one with a sigmoid; both belong to their task. f, a 3 x 3
convolution with batch normalisation and ReLU, is shared by the tasks; its output is averaged to the size of u_l. The
paper takes u from the middle and from the end of a block; here a stage has one output. Features may be vectors
(`dimensions=0`, linear layers), sequences [samples, channels, time] or maps [samples, channels, height, width].

The stages and f are shared. Masks reach into the middle of the encoder, so there is no one representation: methods that
need it look at the output of every stage, and the masks below the last stage are weighted with their task.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from excessmtl.architectures.base import MultiTask

_CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d}
_NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d}
_POOLS = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d}


class MTAN(MultiTask):
    """Attention of each task on the features of one encoder.

    Args:
        stages: The stages of the encoder, in order.
        heads: Task -> head, on the features of the last stage.
        channels: How many channels each stage puts out.
        dimensions: Of the features beside samples and channels: 2 for maps, 1 for sequences, 0 for vectors.
    """

    def __init__(
        self, stages: Sequence[nn.Module], heads: Mapping[str, nn.Module], channels: Sequence[int], dimensions: int = 2
    ) -> None:
        super().__init__(heads)
        if dimensions not in _NORMS:
            raise ValueError(f"dimensions must be 0, 1 or 2, found {dimensions!r}")
        if not stages or len(channels) != len(stages):
            raise ValueError(f"channels must have one number for each of the {len(stages)} stages, found {channels!r}")
        before = [0, *channels[:-1]]
        self.dimensions = dimensions
        self.stages = nn.ModuleList(stages)
        self.passed_on = nn.ModuleList(
            nn.Sequential(_layer(own, own, dimensions, 3), _NORMS[dimensions](own), nn.ReLU()) for own in channels[:-1]
        )
        self.masks = nn.ModuleDict(
            {
                task: nn.ModuleList(
                    _mask(own + more, own, dimensions) for own, more in zip(channels, before, strict=True)
                )
                for task in self.tasks
            }
        )

    @property
    def shared(self) -> list[nn.Module]:
        """The stages of the encoder, and what passes the features of a task on to its next mask."""
        return [*self.stages, *self.passed_on]

    def features(self, inputs: Tensor, tasks: Sequence[str]) -> dict[str, Tensor]:
        """The features of the last stage under the mask of each task."""
        features: dict[str, Tensor] = {}
        u = inputs
        for level, stage in enumerate(self.stages):
            u = stage(u)
            for task in tasks:
                seen = u
                if level:
                    passed = self.passed_on[level - 1](features[task])
                    size = _POOLS[self.dimensions](passed, u.shape[2:]) if self.dimensions else passed
                    seen = torch.cat((u, size), 1)
                features[task] = self.masks[task][level](seen) * u  # type: ignore[index]
        return features


def _layer(inputs: int, outputs: int, dimensions: int, size: int) -> nn.Module:
    if not dimensions:
        return nn.Linear(inputs, outputs)
    return _CONVOLUTIONS[dimensions](inputs, outputs, size, padding=size // 2)


def _mask(inputs: int, channels: int, dimensions: int) -> nn.Module:
    first, second = _layer(inputs, channels, dimensions, 1), _layer(channels, channels, dimensions, 1)
    norm = _NORMS[dimensions]
    return nn.Sequential(first, norm(channels), nn.ReLU(), second, norm(channels), nn.Sigmoid())
