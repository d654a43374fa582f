"""Per-sample gradients at the representation, through a virtual linear adapter.

Imagine z + W z + b in place of z, with W = b = 0. The adapter changes nothing, but it has a gradient: for sample b
the outer product of (z_b, 1) with dz_b, summed over the positions of a map or sequence. So sums over samples of
that gradient and of its square need z and dz alone: no layer of the trunk is looked at, and no backward is added.

Wide representations are projected to `width` by fixed Gaussian matrices first. The sketch has one size whatever the
trunk, which keeps the cost low and the state small and complete from the start.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from excessmtl.gradients.observation import Observation, Sample


@dataclass(frozen=True)
class Moments:
    """Sums over the labelled samples of each task: of the adapter gradient g_b, of its square, and of 1."""

    first: Tensor
    """[m, width + 1, width]"""
    second: Tensor
    """[m, width + 1, width]"""
    count: Tensor
    """[m]"""


@dataclass(frozen=True)
class Adapter:
    """How samples are read off a representation.

    `batch_dim` is the dimension of z that counts samples; `feature_dim` the one that counts features (None: the
    second for maps with four or more dimensions, else the last).
    """

    width: int = 32
    seed: int = 0
    batch_dim: int = 0
    feature_dim: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or self.width < 1:
            raise ValueError(f"width must be a whole number, at least 1, found {self.width!r}")
        for name in ("seed", "batch_dim"):
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"{name} must be a whole number, found {getattr(self, name)!r}")
        if self.feature_dim is not None and (
            not isinstance(self.feature_dim, int) or self.feature_dim == self.batch_dim
        ):
            raise ValueError(f"feature_dim must be a dimension other than batch_dim, found {self.feature_dim!r}")

    def moments(self, seen: Observation) -> Moments:
        """Moments of every task over all micro-batches of a step (zeros where the task has none)."""
        projected: dict[tuple[int, int, int], Tensor] = {}
        found = [self._of_task(seen.samples(task), seen.losses, projected) for task in range(seen.tasks)]
        first, second, count = (torch.stack(column) for column in zip(*found, strict=True))
        # One sum over the processes for all three.
        flat = seen.pool(torch.cat([first.flatten(1), second.flatten(1), count[:, None]], dim=1))
        first, second = (part.view_as(first) for part in flat[:, :-1].chunk(2, dim=1))
        return Moments(first, second, flat[:, -1])

    def _of_task(
        self, samples: Sequence[Sample], like: Tensor, projected: dict[tuple[int, int, int], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        first = like.new_zeros(self.width + 1, self.width)
        second, count = torch.zeros_like(first), like.new_zeros(())
        for batch in sorted({sample.batch for sample in samples}):
            parts = [sample for sample in samples if sample.batch == batch]
            factors = [self._factors(sample, index, len(parts), projected) for index, sample in enumerate(parts)]
            size = _common_size(factors)
            labelled = parts[0].labelled
            parts[0].check_mask(size)
            count = count + (size if labelled is None else labelled.to(like.device).sum())
            if len(factors) == 1 and factors[0][0].shape[1] == 1:
                z, dz = (factor.squeeze(1) for factor in factors[0])
                first, second = first + z.T @ dz, second + z.square().T @ dz.square()
            else:
                per_sample = torch.stack([z.mT @ dz for z, dz in factors]).sum(0)
                first, second = first + per_sample.sum(0), second + per_sample.square().sum(0)
        # The loss is a mean over the labelled samples, so a sample's own gradient is `count` times what arrives.
        return first * count, second * count.square(), count

    def _factors(
        self, sample: Sample, index: int, tensors: int, projected: dict[tuple[int, int, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(z, 1) and dz as [samples, positions, width (+ 1)]."""
        key = (id(sample.z), index, tensors)
        if key not in projected:
            z = self._project(sample.z.float(), 2 * index, tensors)
            projected[key] = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        return projected[key], self._project(sample.dz, 2 * index + 1, tensors)

    def _project(self, tensor: Tensor, stream: int, tensors: int) -> Tensor:
        flat = self._positions(tensor)
        features = flat.shape[-1]
        if features <= self.width and tensors == 1:
            return torch.nn.functional.pad(flat, (0, self.width - features))
        return flat @ _gaussian(features, self.width, self.seed + 7919 * stream, flat.device)

    def _positions(self, tensor: Tensor) -> Tensor:
        if tensor.ndim < 2:
            tensor = tensor.reshape(-1, 1)
        for name, dim in (("batch_dim", self.batch_dim), ("feature_dim", self.feature_dim or 0)):
            if not -tensor.ndim <= dim < tensor.ndim:
                raise ValueError(f"{name} is {dim}, but the representation has shape {tuple(tensor.shape)}")
        features = self.feature_dim
        if features is None:
            features = 1 if tensor.ndim >= 4 else -1
        tensor = tensor.movedim((self.batch_dim, features), (0, -1))
        return tensor.reshape(len(tensor), -1, tensor.shape[-1])


def _common_size(factors: Sequence[tuple[Tensor, Tensor]]) -> int:
    sizes = sorted({len(z) for z, _ in factors})
    if len(sizes) > 1:
        raise ValueError(
            f"the tensors of the representation count {sizes} samples along batch_dim; pass at= with tensors that "
            "have the batch in the same dimension"
        )
    if sizes[0] < 2:
        warnings.warn(
            f"the representation has {sizes[0]} sample along batch_dim; excess risks need two or more, so this batch "
            "leaves the weights as they are. If the batch is another dimension of it, pass batch_dim",
            stacklevel=2,
        )
    return sizes[0]


@lru_cache(maxsize=64)
def _gaussian(features: int, width: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(features, width, generator=generator) / math.sqrt(width)).to(device)
