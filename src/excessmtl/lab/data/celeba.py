"""CelebA: forty yes-or-no attributes of faces, from the files as they are published (not in the paper)."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, DataNotFoundError, Recipe, Split, benchmark
from excessmtl.lab.data.kinds import binary
from excessmtl.lab.data.networks import ResNet18
from excessmtl.lab.data.pictures import decode, open_decoded, stamp_of
from excessmtl.lab.data.scaling import PixelScaling
from excessmtl.lab.data.sources import cache_folder
from excessmtl.lab.data.tasks import Task

_PICTURES, _ATTRIBUTES, _PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
_PARTS = 3
"""Training, validation and test, as numbered in the partition."""
_SCALING = PixelScaling(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
_NOISY = ("Attractive", "Oval_Face", "Young", "Big_Lips")
"""Our choice: matters of taste."""


@benchmark("celeba", "40 attributes of 202,599 faces")
def load(data: Path | None, *, size: int = 64) -> Benchmark:
    """A binary task per attribute, on the same pictures, with the official split.

    Args:
        data: the folder with `img_align_celeba`, `list_attr_celeba.txt` and `list_eval_partition.txt`.
        size: pictures are resized to size x size; 64 is usual. They are decoded once, to a file in the cache folder.
    """
    if not isinstance(size, int) or not 32 <= size <= 256:
        raise ValueError(f"size must be a whole number from 32 to 256, found {size!r}")
    folder = sources.find("celeba", data)
    names, attributes, labels = _attributes(folder / _ATTRIBUTES)
    parts = _partition(folder / _PARTITION, names)
    images = _images(folder / _PICTURES, names, size)
    splits = []
    for part in range(_PARTS):
        rows = torch.from_numpy(np.flatnonzero(parts == part))
        if not len(rows):
            raise ValueError(f"{folder / _PARTITION} has no picture of part {part}; all of 0, 1 and 2 are needed.")
        own = torch.from_numpy(labels)[rows].float()
        splits.append(Split(_block(images, rows), {name: own[:, place] for place, name in enumerate(attributes)}))
    return Benchmark(
        "celeba",
        f"CelebA, {len(names):,} faces, {len(attributes)} attributes, {size} px",
        tuple(Task(name, 1, binary) for name in attributes),
        *splits,
        recipe=Recipe(learning_rate=3e-4, weight_decay=0.0, batch_size=256, epochs=15),
        noisy_tasks=tuple(name for name in _NOISY if name in attributes) or (attributes[0],),
        build_trunk=ResNet18,
        build_head=lambda task: nn.Linear(512, task.outputs),
        prepare=_SCALING,
    )


def _lines(path: Path) -> list[list[str]]:
    if not path.is_file():
        wanted = f"{_PICTURES}, {_ATTRIBUTES} and {_PARTITION}"
        raise DataNotFoundError(f"{path} is missing: --data must name the folder with {wanted}.")
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _attributes(path: Path) -> tuple[list[str], list[str], npt.NDArray[np.int8]]:
    """Names of the pictures, of the attributes, and 0 or 1 for each pair; the file has their number, then -1 and 1."""
    lines = _lines(path)
    try:
        count, attributes, rows = int(lines[0][0]), lines[1], lines[2:]
        values = np.array([row[1:] for row in rows], dtype=np.int8)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} is not the list of CelebA's attributes ({error}); fetch it again.") from error
    if len(rows) != count or values.shape != (count, len(attributes)) or not np.isin(values, (-1, 1)).all():
        raise ValueError(
            f"{path} announces {count} pictures and {len(attributes)} attributes of -1 or 1, and holds a table of "
            f"{values.shape}; fetch it again."
        )
    return [row[0] for row in rows], attributes, (values > 0).astype(np.int8)


def _partition(path: Path, names: list[str]) -> npt.NDArray[np.int64]:
    """0, 1 or 2 for each picture."""
    parts = {row[0]: row[-1] for row in _lines(path)}
    wrong = next((name for name in names if parts.get(name) not in ("0", "1", "2")), None)
    if wrong is not None:
        raise ValueError(f"{path} has {parts.get(wrong)!r} for {wrong}, expected 0, 1 or 2; fetch it again.")
    return np.array([int(parts[name]) for name in names])


def _images(folder: Path, names: list[str], size: int) -> torch.Tensor:
    """All pictures, from the cache where they were decoded before."""
    missing = next((name for name in names if not (folder / name).is_file()), None)
    if missing is not None:
        raise DataNotFoundError(f"{folder / missing} is missing, which {_ATTRIBUTES} names; unpack the pictures again.")
    stamp = stamp_of([folder / name for name in names], str(folder.resolve()), size)
    stored = cache_folder() / "celeba-pictures" / f"{size}-{stamp}.npy"
    if not stored.is_file():
        decode(folder, names, size, stored, folder)
    return open_decoded(stored)


def _block(images: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A slice of the file where the rows are one after the other, as in the published split; else a copy."""
    first, last = int(rows[0]), int(rows[-1])
    return images[first : last + 1] if last + 1 - first == len(rows) else images[rows]
