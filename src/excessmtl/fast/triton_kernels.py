"""Two passes over large maps that take PyTorch several. Imported by `kernels.py` alone, where there is Triton."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_AT_ONCE = 4
"""Tensors that one launch adds up."""
_BLOCK = 1024
_POSITIONS, _WARPS, _STAGES = 64, 4, 3
_PROGRAMS = 512
"""So many keep a large GPU busy; each leaves a matrix to be added up."""


@triton.jit
def _add(total, tensor, at, inside, weights, ok, place: tl.constexpr):
    # What does not count is not even read.
    counts = inside & (tl.load(ok + place) != 0)
    return total + tl.load(tensor + at, mask=counts, other=0.0).to(tl.float32) * tl.load(weights + place)


@triton.jit
def _weighted_sum(
    out, first, second, third, fourth, weights, ok, size, COUNT: tl.constexpr, MORE: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    if MORE:
        total = tl.load(out + at, mask=inside).to(tl.float32)
    total = _add(total, first, at, inside, weights, ok, 0)
    if COUNT > 1:
        total = _add(total, second, at, inside, weights, ok, 1)
    if COUNT > 2:
        total = _add(total, third, at, inside, weights, ok, 2)
    if COUNT > 3:
        total = _add(total, fourth, at, inside, weights, ok, 3)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def weighted_sum(tensors: Sequence[Tensor], weights: Tensor, ok: Tensor) -> Tensor:
    """`excessmtl.fast.large_maps.weighted_sum`, reading every tensor once."""
    dtype, size, weights = tensors[0].dtype, tensors[0].numel(), weights.float()
    # What is read again by another launch must not have been rounded to half precision.
    out = torch.empty_like(tensors[0], dtype=dtype if len(tensors) <= _AT_ONCE else torch.float32)
    for start in range(0, len(tensors), _AT_ONCE):
        some = tensors[start : start + _AT_ONCE]
        filled = [*some, *[some[0]] * (_AT_ONCE - len(some))]
        with torch.cuda.device(out.device):
            _weighted_sum[(triton.cdiv(size, _BLOCK),)](
                out, *filled, weights[start:], ok[start:], size, COUNT=len(some), MORE=start > 0, BLOCK=_BLOCK
            )
    return out.to(dtype)


@triton.jit
def _outer_products(
    z,
    dz,
    out,
    positions,
    features,
    per_program,
    z_sample,
    z_position,
    z_feature,
    dz_sample,
    dz_position,
    dz_feature,
    POSITIONS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    sample, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    z += sample * z_sample
    dz += sample * dz_sample
    feature = tl.arange(0, FEATURES)
    there = feature < features
    total = tl.zeros((FEATURES, FEATURES), dtype=tl.float32)
    end = tl.minimum((part + 1) * per_program, positions)
    for start in range(part * per_program, end, POSITIONS):
        position = start + tl.arange(0, POSITIONS)
        inside = position < end
        left = tl.load(
            z + feature[:, None] * z_feature + position[None, :] * z_position,
            mask=there[:, None] & inside[None, :],
            other=0.0,
        )
        right = tl.load(
            dz + position[:, None] * dz_position + feature[None, :] * dz_feature,
            mask=inside[:, None] & there[None, :],
            other=0.0,
        )
        # Three products in the precision of tensor cores are one in fp32.
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision="tf32x3")
    row = (part * tl.num_programs(0) + sample) * features + feature[:, None]
    tl.store(out + row * features + feature[None, :], total, mask=there[:, None] & there[None, :])


def outer_products(z: Tensor, dz: Tensor) -> Tensor:
    """`excessmtl.estimation.outer_products.outer_products`, with every sample's positions spread over the device."""
    samples, positions, features = z.shape
    parts = triton.cdiv(_PROGRAMS, samples)
    per_program = triton.cdiv(triton.cdiv(positions, parts), _POSITIONS) * _POSITIONS
    parts = triton.cdiv(positions, per_program)
    out = z.new_empty(parts, samples, features, features, dtype=torch.float32)
    with torch.cuda.device(out.device):
        _outer_products[(samples, parts)](  # CUDA counts no more than 65,535 of the second
            z,
            dz,
            out,
            positions,
            features,
            per_program,
            *z.stride(),
            *dz.stride(),
            POSITIONS=_POSITIONS,
            FEATURES=max(16, triton.next_power_of_2(features)),
            num_warps=_WARPS,
            num_stages=_STAGES,
        )
    return out.sum(0)
