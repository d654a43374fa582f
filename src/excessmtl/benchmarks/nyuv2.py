"""NYUv2 in the array format of MTAN: `train` and `val`, each with `image`, `label`, `depth` and `normal`."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from excessmtl.benchmarks import sources
from excessmtl.benchmarks.base import Benchmark, DataNotFoundError, Split, benchmark
from excessmtl.benchmarks.dense import TASKS, dense_benchmark

_CLASSES = TASKS[0].outputs
_CHANNELS = {"image": (3,), "label": (), "depth": (1,), "normal": (3,)}
"""Folder -> what follows height and width in the shape of its arrays."""


@benchmark("nyuv2", "795 + 654 indoor scenes: 13-class labels, depth and normals", "synthetic-rooms")
def load(data: Path | None, seed: int, *, levels: int = 4, augment: bool = True, validation: float = 0.1) -> Benchmark:
    """Read the scenes into memory.

    Args:
        data: the folder that holds `train` and `val`; `val` becomes the test split, as in the literature.
        seed: not used here; the data is the same for every seed.
        levels: of the SegNet: 4 as in the paper, 5 as in the peers' comparisons.
        augment: zoom and mirror the training scenes.
        validation: share of the training scenes held out, evenly spread over the set; 0 trains on all.
    """
    if not 0 <= validation < 1:
        raise ValueError(f"validation is {validation}: give a share of the training scenes from 0 to below 1")
    folder = sources.find("nyuv2", data, "synthetic-rooms")
    everything, test = _read(folder / "train"), _read(folder / "val")
    counted = torch.arange(everything.length("depth") + 1, dtype=torch.float64) * validation
    held_out = counted.floor().diff().bool()
    # All scenes without a copy, where none is held out.
    train = everything.rows(dict.fromkeys(everything.targets, ~held_out)) if held_out.any() else everything
    return dense_benchmark(
        "nyuv2",
        f"NYUv2, {everything.length('depth')} + {test.length('depth')} scenes",
        (train, everything.rows(dict.fromkeys(everything.targets, held_out)), test),
        levels=levels,
        augment=augment,
    )


def _read(folder: Path) -> Split:
    names = _names(folder)
    height, width = _array(folder / "image" / names[0], "image", None).shape[:2]
    images = torch.empty(len(names), 3, height, width, dtype=torch.uint8)
    labels = torch.empty(len(names), height, width, dtype=torch.int8)
    depths = torch.empty(len(names), 1, height, width)
    normals = torch.empty(len(names), 3, height, width)
    for i, name in enumerate(names):
        image, label, depth, normal = (
            torch.from_numpy(_array(folder / kind / name, kind, (height, width))) for kind in _CHANNELS
        )
        # Eight bits a channel, as the camera gave them, take a quarter of the memory.
        images[i] = (image.permute(2, 0, 1) * 255).round().to(torch.uint8)
        labels[i], depths[i], normals[i] = label, depth.permute(2, 0, 1), normal.permute(2, 0, 1)
    return Split(images, {"segmentation": labels, "depth": depths, "normals": normals})


def _names(folder: Path) -> list[str]:
    """Names of the scenes' files, the same in all four folders, in the order of their numbers."""
    found = {kind: {path.name for path in (folder / kind).glob("*.npy")} for kind in _CHANNELS}
    for kind, names in found.items():
        missing = set().union(*found.values()) - names
        if missing or not names:
            example = min(missing, default="0.npy")
            raise DataNotFoundError(
                f"{folder / kind / example} is missing: NYUv2 in MTAN's format has the same numbered files in "
                "image, label, depth and normal of train and val; unpack it again, or use `synthetic-rooms`."
            )
    return sorted(found["image"], key=lambda name: (len(name), name))


def _array(path: Path, kind: str, size: tuple[int, int] | None) -> NDArray[np.float32]:
    if not path.is_file():  # reading a pipe or a device may never end
        raise ValueError(f"{path} is not a plain file; unpack it again")
    try:
        array = np.load(path, allow_pickle=False)
        numbers = np.ascontiguousarray(array, dtype=np.float32)
    except (OSError, ValueError, EOFError, TypeError) as error:
        raise ValueError(f"{path} is not an array of numbers in .npy format ({error}): unpack it again") from error
    ndim = 2 + len(_CHANNELS[kind])
    expected = (*(size or numbers.shape[:2]), *_CHANNELS[kind])
    if numbers.ndim != ndim or numbers.shape != expected:
        form = " x ".join(map(str, expected if size else ("height", "width", *_CHANNELS[kind])))
        raise ValueError(f"{path} has shape {numbers.shape}, expected {form}: is this the {kind} of that scene?")
    low, high = {"image": (0, 1), "label": (-1, _CLASSES - 1), "depth": (0, np.inf), "normal": (-1.01, 1.01)}[kind]
    if not (np.isfinite(numbers).all() and low <= numbers.min() and numbers.max() <= high):
        raise ValueError(
            f"{path} has values from {numbers.min():g} to {numbers.max():g}, expected {low:g} to {high:g}: "
            f"is this the {kind} of that scene, in MTAN's format?"
        )
    return numbers
