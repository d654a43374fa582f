"""MultiMNIST: two overlapping digits in one picture, one task for each (paper, section 6.1)."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, DataNotFoundError, Recipe, Split, Targets, benchmark
from excessmtl.lab.data.digits import Digits, load_digits, read_idx
from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.networks import LeNet
from excessmtl.lab.data.pictures import pixel_scaling
from excessmtl.lab.data.tasks import Task

_NAMES = ("top_left", "bottom_right")
_OFFSETS = {28: 6, 36: 8, 56: 28}
"""Canvas -> where the second digit begins, from the top and from the left."""


@benchmark("multimnist", "two digits per picture, top left and bottom right; MNIST or the bundled digits")
def load(
    data: Path | None, seed: int, *, canvas: int = 36, pairs: int | None = None, bundled: bool = False
) -> Benchmark:
    """Pictures of two digits.

    Args:
        data: a folder with MNIST's four IDX files; None takes them from the cache, else the bundled digits.
        seed: decides the training and validation pairs; the test pairs are always the same.
        canvas: 36 (the digits stand in opposite corners and overlap), 56 (the same without overlap), or 28 (the second
            digit six pixels from the first, then resized from 36 to the nearest pixel, as in earlier multi-task work).
        pairs: how many training pairs to make; None makes one per training digit (60,000 of MNIST's). A tenth of
            the digits is held out for as many validation pairs.
        bundled: take the bundled digits even where MNIST is in the cache.
    """
    if canvas not in _OFFSETS:
        raise ValueError(f"canvas must be 28, 36 or 56, got {canvas!r}.")
    if bundled and data is not None:
        raise ValueError(f"--data {data} and bundled=True exclude each other; leave one of them out.")
    digits, test_digits, source = _digits(data, bundled)
    pairs = len(digits) if pairs is None else pairs
    if not isinstance(pairs, int) or pairs < 10:
        raise ValueError(f"pairs must be a whole number of at least 10, got {pairs!r}.")
    rng = np.random.default_rng((seed, *b"multimnist pairs"))
    # Digits, not pairs, are held out: otherwise every validation digit would also be a training digit.
    held_out = len(digits) // 10
    train = _pair(digits[:-held_out], pairs, canvas, rng)
    validation = _pair(digits[-held_out:], held_out, canvas, rng)
    test = _pair(test_digits, len(test_digits), canvas, np.random.default_rng([*b"multimnist test"]))
    return Benchmark(
        "multimnist",
        f"{source}, {pairs:,} pairs, canvas {canvas}",
        tuple(Task(name, 10, classification) for name in _NAMES),
        *(Split(*part) for part in (train, validation, test)),
        recipe=Recipe(learning_rate=1e-3, weight_decay=0.0, batch_size=256, epochs=15),
        noisy_tasks=("bottom_right",),
        build_trunk=lambda: LeNet(canvas),
        build_head=lambda task: nn.Linear(LeNet.out_features, task.outputs),
        prepare=pixel_scaling(train[0]),
    )


def _digits(data: Path | None, bundled: bool) -> tuple[Digits, Digits, str]:
    folder = None if bundled else sources.where("mnist") if data is None else Path(data)
    if folder is None:
        train, test = load_digits()
        return train, test, f"bundled digits, {len(train):,} + {len(test):,}"
    train, test = (_read(folder, part) for part in ("train", "t10k"))
    return train, test, f"MNIST, {len(train):,} + {len(test):,} digits"


def _read(folder: Path, part: str) -> Digits:
    images, labels = (read_idx(_file(folder, f"{part}-{kind}-ubyte")) for kind in ("images-idx3", "labels-idx1"))
    if images.shape != (len(labels), 28, 28) or len(labels) < 10 or labels.ndim != 1 or labels.max() > 9:
        raise ValueError(
            f"{folder}: the {part} files hold images {tuple(images.shape)} and labels {tuple(labels.shape)}; "
            "expected 28 x 28 images, one label from 0 to 9 for each, at least ten."
        )
    return Digits(images, labels.long())


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataNotFoundError(
        f"--data {folder} holds neither {name} nor {name}.gz: name a folder with MNIST's four IDX files, or "
        "run `excessmtl data get mnist` and leave --data out."
    )


def _pair(digits: Digits, pairs: int, canvas: int, rng: np.random.Generator) -> tuple[Tensor, Targets]:
    """`pairs` pictures in which each digit stands equally often (to within one) at either place."""
    rounds = -(-pairs // len(digits))
    first, second = (
        torch.from_numpy(np.concatenate([rng.permutation(len(digits)) for _ in range(rounds)])[:pairs]) for _ in _NAMES
    )
    images = _draw(digits.images[first], digits.images[second], canvas)
    return images, {_NAMES[0]: digits.labels[first], _NAMES[1]: digits.labels[second]}


def _draw(first: Tensor, second: Tensor, canvas: int) -> Tensor:
    side, offset = max(canvas, 36), _OFFSETS[canvas]
    images = first.new_zeros(len(first), side, side)
    images[:, :28, :28] = first
    corner = images[:, offset : offset + 28, offset : offset + 28]
    torch.maximum(corner, second, out=corner)
    if canvas == side:
        return images
    nearest = ((torch.arange(canvas) + 0.5) * side / canvas).long()
    return images[:, nearest[:, None], nearest]
