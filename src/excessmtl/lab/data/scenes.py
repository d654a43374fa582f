"""NYUv2 and Cityscapes: scenes as numbered .npy files in a folder per kind of map, as MTAN has preprocessed them.

`train` and `val` each have `image`, `depth`, and `label` and `normal` (NYUv2) or `label_7` and `label_19` (Cityscapes).
Cityscapes is not in the paper, but in most comparisons of methods. Its depth is the inverse one, from the disparity of
two cameras.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, DataNotFoundError, Recipe, Split, benchmark
from excessmtl.lab.data.dense import PAPER_RECIPE, TASKS, dense_benchmark
from excessmtl.lab.data.kinds import depth, segmentation
from excessmtl.lab.data.tasks import Task

_CLASSES = (7, 19)


@dataclass(frozen=True)
class Maps:
    """The maps in one folder."""

    folder: str
    channels: int | None
    """The last number of the shape of an array; None: it has only height and width."""
    low: float
    high: float
    """The values that may occur."""


_IMAGE, _DEPTH, _NORMAL = Maps("image", 3, 0, 1), Maps("depth", 1, 0, math.inf), Maps("normal", 3, -1.01, 1.01)


@benchmark("nyuv2", "795 + 654 indoor scenes: 13-class labels, depth and normals", "synthetic-rooms")
def load_nyuv2(data: Path | None, *, levels: int = 4, augment: bool = True, validation: float = 0.1) -> Benchmark:
    """Read the scenes into memory.

    Args:
        data: the folder that holds `train` and `val`; `val` becomes the test split, as in the literature.
        levels: of the SegNet: 4 as in the paper, 5 as in the peers' comparisons.
        augment: zoom and mirror the training scenes.
        validation: share of the training scenes held out, evenly spread over the set; 0 trains on all.
    """
    maps = {"segmentation": Maps("label", None, -1, TASKS[0].outputs - 1), "depth": _DEPTH, "normals": _NORMAL}
    splits, source = _read("nyuv2", "NYUv2", data, maps, validation)
    return dense_benchmark("nyuv2", source, splits, TASKS, PAPER_RECIPE, levels=levels, augment=augment)


@benchmark("cityscapes", "2,975 + 500 street scenes: 7-class labels and inverse depth", "synthetic-rooms")
def load_cityscapes(
    data: Path | None,
    *,
    classes: int = 7,
    levels: int = 5,
    augment: bool = True,
    validation: float = 0.1,
) -> Benchmark:
    """Read the scenes into memory.

    Args:
        data: the folder that holds `train` and `val`; `val` becomes the test split, as in the literature.
        classes: 7 reads the folder `label_7`, 19 `label_19`.
        levels: of the SegNet; the peers' has 5.
        augment: zoom and mirror the training scenes. As by the peers, the inverse depth is divided by the zoom.
        validation: share of the training scenes held out, evenly spread over the set; 0 trains on all.
    """
    if classes not in _CLASSES:
        raise ValueError(f"classes must be one of {list(_CLASSES)}, the folders of labels there are, found {classes!r}")
    maps = {"segmentation": Maps(f"label_{classes}", None, -1, classes - 1), "depth": _DEPTH}
    splits, source = _read("cityscapes", "Cityscapes", data, maps, validation)
    tasks = (Task("segmentation", classes, segmentation), Task("depth", 1, depth))
    recipe = Recipe(learning_rate=1e-4, weight_decay=0.0, batch_size=8, epochs=200)
    source = f"{source}, {classes} classes"
    return dense_benchmark("cityscapes", source, splits, tasks, recipe, levels=levels, augment=augment)


def _read(
    name: str, title: str, data: Path | None, targets: Mapping[str, Maps], validation: float
) -> tuple[tuple[Split, Split, Split], str]:
    """Training, validation and test scenes, `train`, a share of it held out, and `val`; what the data is."""
    folder = sources.find(name, data)
    scenes, test = (_read_split(folder / part, targets) for part in ("train", "val"))
    source = f"{title}, {scenes.length('depth')} + {test.length('depth')} scenes"
    return (*_held_out(scenes, validation), test), source


def _read_split(folder: Path, targets: Mapping[str, Maps]) -> Split:
    """All scenes of a folder: `image`, and the maps of each task. Maps without channels are classes."""
    names = _names(folder, [_IMAGE, *targets.values()])
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
    types = {task: torch.int8 if maps.channels is None else torch.float32 for task, maps in targets.items()}
    return Split(images, {task: read(maps, types[task]) for task, maps in targets.items()})


def _held_out(scenes: Split, share: float) -> tuple[Split, Split]:
    """Training and validation scenes: a share of them is held out, evenly spread over the set; 0 trains on all."""
    if not 0 <= share < 1:
        raise ValueError(f"validation is {share}: give a share of the training scenes from 0 to below 1")
    task = next(iter(scenes.targets))
    counted = torch.arange(scenes.length(task) + 1, dtype=torch.float64) * share
    chosen = counted.floor().diff().bool()
    # All scenes without a copy, where none is held out.
    train = scenes.rows(dict.fromkeys(scenes.targets, ~chosen)) if chosen.any() else scenes
    return train, scenes.rows(dict.fromkeys(scenes.targets, chosen))


def _names(folder: Path, folders: list[Maps]) -> list[str]:
    """Names of the scenes' files, the same in all folders, in the order of their numbers."""
    names_in = {maps.folder: {path.name for path in (folder / maps.folder).glob("*.npy")} for maps in folders}
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
    try:
        array = np.load(path, allow_pickle=False)
        numbers = np.ascontiguousarray(array, dtype=np.float32)
    except (OSError, ValueError, EOFError, TypeError) as error:
        raise ValueError(f"{path} is not an array of numbers in .npy format ({error}): unpack it again") from error
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
