"""Excess risk from the gradient's signal over its noise, sample against sample.

Eq. 6 of the ExcessMTL paper, excess risk = 1/2 mu' H^-1 mu, is about the *population* gradient mu. A mini-batch
gradient g has E[g^2] = mu^2 + sigma^2 / B, and for a task with noisy labels sigma never dies: put g in place of mu
and the noise is counted as excess risk. Two changes repair that:

    U = ((sum_b g_b)^2 - sum_b g_b^2) / (B (B - 1))     the mean product of two different samples' gradients
    F = (1/B) sum_b g_b^2                               the per-sample Fisher, in place of H

U is unbiased for mu^2 (and may be negative), because label noise and memorised samples pull in directions of their
own and cancel between samples.

From there to units of the loss. Take a linear readout of independent features with squared error: it is off by d_j in
feature j, the loss is r, and g_b = 2 (residual of b) z_bj w_k. Then U_jk / F_jk is d_j^2 E[z_j^2] / r whatever the
output k, and the excess risk sum_j d_j^2 E[z_j^2] is the loss times

    sum_j  (sum_k U_jk) / (sum_k F_jk + damping)

the share of the loss that training can still remove. It has no unit, and it is estimated with exponential averages of
both sums. Elsewhere it is an approximation: features that go together are counted more than once (the share is kept
below one), and several outputs are averaged instead of added. `docs/estimators.md` has how it compares with the truth.

The gradients of single samples are those of a virtual linear adapter at the representation. Imagine z + W z + b in
place of z, with W = b = 0: for sample b its gradient is the outer product of (z_b, 1) with dz_b, summed over the
positions of a map or sequence. So sums over samples of that gradient and of its square need z and dz alone, and no
further backward pass. Wide representations are projected to `width` first, which keeps cost and state small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from excessmtl.distributed.processes import no_reduction, reduced_in_one
from excessmtl.gradients.task_gradients import Sample, Samples
from excessmtl.methods.observation import Observation, labelled_samples
from excessmtl.tensors import cached_constant, filled, total
from excessmtl.warn import warn

_STREAM = 7919
"""Between the seeds of two projections."""
_FEW = 2
"""Up to so many widths of features are multiplied before they are projected; more would cost more than is saved."""
_PART = 512
"""Positions that are multiplied at once on a GPU, where one long product of small matrices keeps most of it waiting."""
_MANY = 2**15
"""So many positions are worth the launches of a product per sample."""


@dataclass(frozen=True)
class Moments:
    """Of the adapter gradients g_b of each task's n labelled samples, as they arrive from a mean over samples."""

    first: Tensor
    """[m, width + 1, width]: (1/n) sum_b g_b"""
    second: Tensor
    """[m, width + 1]: (1/n^2) sum_b g_b^2, summed over the second dimension of g_b as well."""
    count: Tensor
    """[m]: n"""

    @cached_property
    def power(self) -> Tensor:
        """[m, width + 1]: the squares of `first`, summed over its last dimension."""
        return self.first.square().sum(2)

    @cached_property
    def fisher(self) -> Tensor:
        """[m, width + 1]: the per-sample Fisher (1/n) sum_b (n g_b)^2, summed like `second`."""
        return self.second * self.count.unsqueeze(1)


def pair_signal(moments: Moments) -> Tensor:
    """U summed over k: [m, width + 1]. Needs two samples; without them the value means nothing."""
    return (moments.power - moments.second) / (1 - moments.count.reciprocal()).unsqueeze(1)


def reducible_share(signal: Tensor, noise: Tensor, damping: float) -> Tensor:
    """[m] the share of the loss that is excess risk, from averages of U and F, both summed over k.

    `damping`: share of the mean of F added to each coordinate. Coordinates that were never used do not count.
    """
    used: Tensor = torch.linalg.vector_norm(noise, 0, dim=1, keepdim=True)  # how many are not zero
    damped = torch.addcdiv(noise, noise.sum(1, keepdim=True), used, value=damping)
    # Where nothing was used there is no signal either: zero over zero.
    return (signal / damped).sum(1).nan_to_num(0).clamp(0, 1)


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
        batches = seen.samples_of_all
        if batches and self._takes_vectors and all(batch.z.ndim == 2 for batch in batches):
            sums = [total(parts) for parts in zip(*map(self._of_vectors, batches), strict=True)]
        else:
            projected: dict[tuple[int, int, int], Tensor] = {}
            tasks = [self._of_task(seen.samples(task), seen.losses, projected) for task in range(seen.tasks)]
            sums = [torch.stack(parts) for parts in zip(*tasks, strict=True)]
        first, second, count = sums
        if seen.reduction is not no_reduction:
            # The loss is a mean over this process's samples, so a sample's own gradient is `count` times what arrives.
            first, second = first * count[:, None, None], second * count[:, None].square()
            first, second, count = reduced_in_one([first, second, count], seen.reduction)
            share = 1 / count.clamp(min=1)
            first, second = first * share[:, None, None], second * share[:, None].square()
        return Moments(first, second, count)

    @property
    def _takes_vectors(self) -> bool:
        """Whether a matrix is one row of features per sample."""
        return self.batch_dim in (0, -2) and self.feature_dim in (None, 1, -1)

    def _of_vectors(self, batch: Samples) -> tuple[Tensor, Tensor, Tensor]:
        """All tasks at once, for a representation of vectors: the sums below as a product of matrices per task."""
        size, features = batch.z.shape
        seed, device = self.seed, batch.z.device
        # One product projects z and puts the 1 beside it. What is not finite is a sample without a label, see below.
        z = torch.addmm(_last(self.width, device), batch.z.float(), _beside_one(features, self.width, seed, device))
        z = z.nan_to_num(0, 0, 0)
        first, second = batch.gradients.times_samples(z, _narrowed(features, self.width, seed + _STREAM, device))
        return first, second, _counts(batch, _enough(size))

    def _few(self, z: Tensor) -> bool:
        """Whether [samples, positions, features] are better multiplied before they are projected."""
        return z.shape[2] < z.shape[1] and z.shape[2] <= _FEW * self.width

    def _of_task(
        self, samples: Sequence[Sample], like: Tensor, projected: dict[tuple[int, int, int], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        first = like.new_zeros(self.width + 1, self.width)
        second, count = like.new_zeros(self.width + 1), like.new_zeros(())
        for batch in sorted({sample.batch for sample in samples}):
            parts = [sample for sample in samples if sample.batch == batch]
            maps = [self._positions(sample.z) for sample in parts]
            size = _common_size(maps)
            positions = maps[0].shape[1] if self.batch_dim == 0 else 1
            labelled = labelled_samples(parts[0].labelled, size, positions)
            count = count + (size if labelled is None else labelled.to(like.device).sum())
            if len(maps) == 1 and maps[0].shape[1] == 1:
                z, dz = (factor.squeeze(1) for factor in self._factors(parts[0], 0, 1, projected))
                first, second = first + z.T @ dz, second + dz.square().sum(1) @ z.square()
                continue
            if len(maps) == 1 and self._few(maps[0]):
                per_sample = self._multiplied_first(maps[0], self._positions(parts[0].dz))
            else:
                factors = [self._factors(sample, index, len(parts), projected) for index, sample in enumerate(parts)]
                per_sample = torch.stack([z.mT @ dz for z, dz in factors]).sum(0)
            first, second = first + per_sample.sum(0), second + per_sample.square().sum((0, 2))
        return first, second, count

    def _multiplied_first(self, z: Tensor, dz: Tensor) -> Tensor:
        """[samples, width + 1, width]: each sample's gradient, projected when its positions have been summed over.

        For few features at many positions: projected maps, as large as the maps themselves, are not written.
        """
        features, device = dz.shape[-1], dz.device
        left, right = (_narrowed(features, self.width, self.seed + _STREAM * stream, device) for stream in (0, 1))
        # Where a sample without a label is not finite this is zero times that; see `_with_one`.
        products = outer_products(z, dz).nan_to_num(0, torch.inf, -torch.inf)
        return torch.cat([left.T @ products, dz.sum(1).unsqueeze(-2)], dim=-2) @ right

    def _factors(
        self, sample: Sample, index: int, tensors: int, projected: dict[tuple[int, int, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(z, 1) and dz as [samples, positions, width (+ 1)]."""
        key, only = (id(sample.z), index, tensors), tensors == 1
        if key not in projected:
            projected[key] = self._with_one(self._project(sample.z.float(), 2 * index, only))
        return projected[key], self._project(sample.dz, 2 * index + 1, only)

    def _with_one(self, z: Tensor) -> Tensor:
        # A sample that is not finite has no label (its dz is zero), or its task would have been left out.
        z = z.nan_to_num(0, 0, 0)
        return torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)

    def _project(self, tensor: Tensor, stream: int, only: bool) -> Tensor:
        """To `width` features; narrow ones stay as they are where the tensor is the `only` one of its micro-batch."""
        flat = self._positions(tensor)
        features = flat.shape[-1]
        if features <= self.width and only:
            return flat if features == self.width else functional.pad(flat, (0, self.width - features))
        return flat @ _gaussian(features, self.width, self.seed + _STREAM * stream, flat.device)

    def _positions(self, tensor: Tensor) -> Tensor:
        """[samples, positions, features]"""
        if tensor.ndim < 2:
            tensor = tensor.reshape(-1, 1)
        ndim = tensor.ndim
        for name, dim in (("batch_dim", self.batch_dim), ("feature_dim", self.feature_dim or 0)):
            if not -ndim <= dim < ndim:
                raise ValueError(f"{name} is {dim}, but the representation has shape {tuple(tensor.shape)}")
        features = self.feature_dim
        if features is None:
            features = 1 if ndim >= 4 else -1
        tensor = tensor.movedim((self.batch_dim % ndim, features % ndim), (0, -1))
        positions = math.prod(tensor.shape[1:-1])  # said, not -1, which an empty batch leaves open
        return tensor.reshape(tensor.shape[0], positions, tensor.shape[-1])


def _counts(batch: Samples, size: int) -> Tensor:
    """[m]: how many of the `size` samples of the batch carry a label."""
    device = batch.z.device
    if all(batch.present) and all(mask is None for mask in batch.labelled):
        return filled(size, len(batch.present), device)
    masks = []
    for present, mask in zip(batch.present, batch.labelled, strict=True):
        own = labelled_samples(mask, size)
        masks.append(torch.full((size,), present, device=device) if own is None or not present else own.to(device))
    return torch.stack(masks).sum(1).float()


def _common_size(maps: Sequence[Tensor]) -> int:
    sizes = sorted({len(z) for z in maps})
    if len(sizes) > 1:
        raise ValueError(
            f"the tensors of the representation count {sizes} samples along batch_dim; pass at= with tensors that "
            "have the batch in the same dimension"
        )
    return _enough(sizes[0])


def _enough(size: int) -> int:
    if size < 2:
        warn(
            f"the representation has {size} sample along batch_dim; excess risks need two or more, so none is "
            "estimated from this batch. If the batch is another dimension of it, pass batch_dim"
        )
    return size


@cached_constant
def _gaussian(features: int, width: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(features, width, dtype=torch.float32, generator=generator) / math.sqrt(width)).to(device)


@cached_constant
def _narrowed(features: int, width: int, seed: int, device: torch.device) -> Tensor:
    """[features, width]: the projection, or what leaves narrow features as they are and adds zeros."""
    if features > width:
        return _gaussian(features, width, seed, device)
    return torch.eye(features, width, dtype=torch.float32, device=device)


@cached_constant
def _beside_one(features: int, width: int, seed: int, device: torch.device) -> Tensor:
    """[features, width + 1]: the same with a column of zeros, where `_last` puts the 1."""
    return functional.pad(_narrowed(features, width, seed, device), (0, 1))


@cached_constant
def _last(width: int, device: torch.device) -> Tensor:
    """[width + 1]: zeros and a 1."""
    return torch.eye(width + 1, dtype=torch.float32, device=device)[width]


def outer_products(z: Tensor, dz: Tensor) -> Tensor:
    """[samples, features, features]: z' dz of maps [samples, positions, features], in fp32."""
    z, dz = z.float(), dz.float()
    return in_parts(z, dz) if z.device.type == "cuda" and z.shape[1] >= _MANY else z.mT @ dz


def in_parts(z: Tensor, dz: Tensor) -> Tensor:
    """The same, a part of the positions at a time: views of a map, which are not copied."""
    even = z.shape[1] // _PART * _PART
    total = z[:, even:].mT @ dz[:, even:]
    for product, left, right in zip(total, z[:, :even], dz[:, :even], strict=True):
        product += (left.unflatten(0, (-1, _PART)).mT @ right.unflatten(0, (-1, _PART))).sum(0)
    return total
