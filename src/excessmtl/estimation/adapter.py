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

import torch
from torch import Tensor
from torch.nn import functional

from excessmtl.constants import made_once
from excessmtl.gradients.distributed import summed
from excessmtl.gradients.observation import Observation, Sample, Samples, check_mask
from excessmtl.gradients.observe import total


@dataclass(frozen=True)
class Moments:
    """Sums over the labelled samples of each task: of the adapter gradient g_b, of its squares, and of 1."""

    first: Tensor
    """[m, width + 1, width]"""
    second: Tensor
    """[m, width + 1]: summed over the second dimension of g_b as well."""
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
        if seen.together and all(one.z.ndim == 2 for one in seen.together):
            batches = [self._of_all(one) for one in seen.together]
            first, second, count = (total(sums) for sums in zip(*batches, strict=True))
        else:
            projected: dict[tuple[int, int, int], Tensor] = {}
            tasks = [self._of_task(seen.samples(task), seen.losses, projected) for task in range(seen.tasks)]
            first, second, count = (torch.stack(sums) for sums in zip(*tasks, strict=True))
        # The loss is a mean over the labelled samples, so a sample's own gradient is `count` times what arrives.
        first, second = first * count[:, None, None], second * count[:, None].square()
        return Moments(*summed([first, second, count], seen.pool))

    def _of_all(self, batch: Samples) -> tuple[Tensor, Tensor, Tensor]:
        """All tasks at once, for a representation of vectors: the sums below as a product of matrices per task."""
        z = self._with_one(self._project(batch.z.float(), 0)).squeeze(-2)
        features = batch.z.shape[1]
        if self.batch_dim in (0, -2) and features > self.width:
            dz = batch.gradients.times(self._matrix(features, 1, z.device))
        else:
            dz = self._project(batch.dz, 1, lead=1).squeeze(-2)
        count = batch.counts(_enough(len(z)))
        return z.T @ dz, dz.square().sum(-1) @ z.square(), count

    def _of_task(
        self, samples: Sequence[Sample], like: Tensor, projected: dict[tuple[int, int, int], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        first = like.new_zeros(self.width + 1, self.width)
        second, count = like.new_zeros(self.width + 1), like.new_zeros(())
        for batch in sorted({sample.batch for sample in samples}):
            parts = [sample for sample in samples if sample.batch == batch]
            factors = [self._factors(sample, index, len(parts), projected) for index, sample in enumerate(parts)]
            size = _common_size(factors)
            labelled = parts[0].labelled
            check_mask(labelled, size)
            count = count + (size if labelled is None else labelled.to(like.device).sum())
            if len(factors) == 1 and factors[0][0].shape[1] == 1:
                z, dz = (factor.squeeze(1) for factor in factors[0])
                first, second = first + z.T @ dz, second + dz.square().sum(1) @ z.square()
            else:
                per_sample = torch.stack([z.mT @ dz for z, dz in factors]).sum(0)
                first, second = first + per_sample.sum(0), second + per_sample.square().sum((0, 2))
        return first, second, count

    def _factors(
        self, sample: Sample, index: int, tensors: int, projected: dict[tuple[int, int, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(z, 1) and dz as [samples, positions, width (+ 1)]."""
        key, alone = (id(sample.z), index, tensors), tensors == 1
        if key not in projected:
            projected[key] = self._with_one(self._project(sample.z.float(), 2 * index, alone))
        return projected[key], self._project(sample.dz, 2 * index + 1, alone)

    def _with_one(self, z: Tensor) -> Tensor:
        # A sample that is not finite has no label (its dz is zero), or its task would have been left out.
        z = z.nan_to_num(0, 0, 0)
        return torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)

    def _project(self, tensor: Tensor, stream: int, alone: bool = True, lead: int = 0) -> Tensor:
        """To `width` features; narrow ones stay as they are where the tensor is `alone` the representation."""
        flat = self._positions(tensor, lead)
        features = flat.shape[-1]
        if features <= self.width and alone:
            return flat if features == self.width else functional.pad(flat, (0, self.width - features))
        return flat @ self._matrix(features, stream, flat.device)

    def _matrix(self, features: int, stream: int, device: torch.device) -> Tensor:
        return _gaussian(features, self.width, self.seed + 7919 * stream, device)

    def _positions(self, tensor: Tensor, lead: int = 0) -> Tensor:
        """[samples, positions, features], behind `lead` dimensions that are left alone."""
        if tensor.ndim - lead < 2:
            tensor = tensor.reshape(*tensor.shape[:lead], -1, 1)
        ndim = tensor.ndim - lead
        for name, dim in (("batch_dim", self.batch_dim), ("feature_dim", self.feature_dim or 0)):
            if not -ndim <= dim < ndim:
                raise ValueError(f"{name} is {dim}, but the representation has shape {tuple(tensor.shape[lead:])}")
        features = self.feature_dim
        if features is None:
            features = 1 if ndim >= 4 else -1
        tensor = tensor.movedim((lead + self.batch_dim % ndim, lead + features % ndim), (lead, -1))
        positions = math.prod(tensor.shape[lead + 1 : -1])  # said, not -1, which an empty batch leaves open
        return tensor.reshape(*tensor.shape[: lead + 1], positions, tensor.shape[-1])


def _common_size(factors: Sequence[tuple[Tensor, Tensor]]) -> int:
    sizes = sorted({len(z) for z, _ in factors})
    if len(sizes) > 1:
        raise ValueError(
            f"the tensors of the representation count {sizes} samples along batch_dim; pass at= with tensors that "
            "have the batch in the same dimension"
        )
    return _enough(sizes[0])


def _enough(size: int) -> int:
    if size < 2:
        warnings.warn(
            f"the representation has {size} sample along batch_dim; excess risks need two or more, so none is "
            "estimated from this batch. If the batch is another dimension of it, pass batch_dim",
            stacklevel=2,
        )
    return size


@made_once
def _gaussian(features: int, width: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(features, width, generator=generator) / math.sqrt(width)).to(device)
