"""NYUv2: scenes as numbered .npy files in a folder per kind of map, as MTAN has preprocessed them.

`train` and `val` each have `image`, `label`, `depth` and `normal`.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, DataNotFoundError, Split, benchmark
from excessmtl.lab.data.dense import PAPER_RECIPE, TASKS, dense_benchmark
from excessmtl.lab.schema import explained


@dataclass(frozen=True)
class Maps:
    """The maps in one folder."""

    folder: str
    channels: int | None
    """The last number of the shape of an array; None: it has only height and width."""
    low: float
    high: float
    """The values that may occur."""


_IMAGE = Maps("image", 3, 0, 1)
_TARGETS = {
    "segmentation": Maps("label", None, -1, TASKS[0].outputs - 1),
    "depth": Maps("depth", 1, 0, math.inf),
    "normals": Maps("normal", 3, -1.01, 1.01),
}


@benchmark("nyuv2", "795 + 654 indoor scenes: 13-class labels, depth and normals", "synthetic-rooms")
def load(data: Path | None, *, levels: int = 4, augment: bool = True, validation: float = 0.1) -> Benchmark:
    """Read the scenes into memory.

    Args:
        data: the folder that holds `train` and `val`; `val` becomes the test split, as in the literature.
        levels: of the SegNet: 4 as in the paper, 5 as in the peers' comparisons.
        augment: zoom and mirror the training scenes.
        validation: share of the training scenes held out, evenly spread over the set; 0 trains on all.
    """
    folder = sources.find("nyuv2", data)
    scenes, test = (_read_split(folder / part) for part in ("train", "val"))
    source = f"NYUv2, {scenes.length('depth')} + {test.length('depth')} scenes"
    splits = (*_held_out(scenes, validation), test)
    return dense_benchmark("nyuv2", source, splits, PAPER_RECIPE, levels=levels, augment=augment)


def _read_split(folder: Path) -> Split:
    """All scenes of a folder: `image`, and the maps of each task. Maps without channels are classes."""
    names = _names(folder)
    height, width = _array(folder, names[0], _IMAGE, None).shape[:2]

    def read(maps: Maps, dtype: torch.dtype, factor: int = 1) -> Tensor:
        shape = (height, width) if maps.channels is None else (maps.channels, height, width)
        stacked = torch.empty(len(names), *shape, dtype=dtype)
        for number, name in enumerate(names):
            array = torch.from_numpy(_array(folder, name, maps, (height, width)))
            array = array if maps.channels is None else array.permute(2, 0, 1)
            stacked[number] = array if factor == 1 else (array * factor).round().to(dtype)
        return stacked

    # Eight bits a channel, as the camera gave them, take a quarter of the memory.
    images = read(_IMAGE, torch.uint8, factor=255)
    types = {task: torch.int8 if maps.channels is None else torch.float32 for task, maps in _TARGETS.items()}
    return Split(images, {task: read(maps, types[task]) for task, maps in _TARGETS.items()})


def _held_out(scenes: Split, share: float) -> tuple[Split, Split]:
    """Training and validation scenes: a share of them is held out, evenly spread over the set; 0 trains on all."""
    if not 0 <= share < 1:
        raise ValueError(f"validation is {share}: give a share of the training scenes from 0 to below 1")
    counted = torch.arange(scenes.length("depth") + 1, dtype=torch.float64) * share
    chosen = counted.floor().diff().bool()
    # All scenes without a copy, where none is held out.
    train = scenes.rows(dict.fromkeys(scenes.targets, ~chosen)) if chosen.any() else scenes
    return train, scenes.rows(dict.fromkeys(scenes.targets, chosen))


def _names(folder: Path) -> list[str]:
    """Names of the scenes' files, the same in all folders, in the order of their numbers."""
    folders = [_IMAGE.folder, *(maps.folder for maps in _TARGETS.values())]
    names_in = {name: {path.name for path in (folder / name).glob("*.npy")} for name in folders}
    for subfolder, names in names_in.items():
        missing = set().union(*names_in.values()) - names
        if missing or not names:
            example = min(missing, default="0.npy")
            raise DataNotFoundError(
                f"{folder / subfolder / example} is missing: MTAN's format has the same numbered files in "
                f"{', '.join(names_in)} of train and val; unpack it again."
            )
    return sorted(names_in[_IMAGE.folder], key=lambda name: (len(name), name))


def _array(folder: Path, name: str, maps: Maps, size: tuple[int, int] | None) -> NDArray[np.float32]:
    path = folder / maps.folder / name
    if not path.is_file():  # reading a pipe or a device may never end
        raise ValueError(f"{path} is not a plain file; unpack it again")
    broken = (OSError, ValueError, EOFError, TypeError)
    with explained(f"{path} is not an array of numbers in .npy format", "unpack it again", *broken):
        array = np.load(path, allow_pickle=False)
        numbers = np.ascontiguousarray(array, dtype=np.float32)
    channels = () if maps.channels is None else (maps.channels,)
    expected = (*(size or numbers.shape[:2]), *channels)
    if numbers.ndim != 2 + len(channels) or numbers.shape != expected:
        form = " x ".join(map(str, expected if size else ("height", "width", *channels)))
        raise ValueError(f"{path} has shape {numbers.shape}, expected {form}: is this the {maps.folder} of that scene?")
    if not (np.isfinite(numbers).all() and maps.low <= numbers.min() and numbers.max() <= maps.high):
        raise ValueError(
            f"{path} has values from {numbers.min():g} to {numbers.max():g}, expected {maps.low:g} to {maps.high:g}: "
            f"is this the {maps.folder} of that scene, in MTAN's format?"
        )
    return numbers
