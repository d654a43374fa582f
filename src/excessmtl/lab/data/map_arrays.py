"""Scenes as numbered .npy files in a folder per kind of map, the format of MTAN's preprocessed NYUv2 and Cityscapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import DataNotFoundError, Split


@dataclass(frozen=True)
class Maps:
    """The maps in one folder."""

    folder: str
    channels: int | None
    """The last number of the shape of an array; None: it has only height and width."""
    low: float
    high: float
    """The values that may occur."""


IMAGE = Maps("image", 3, 0, 1)


def read_scenes(
    name: str, data: Path | None, targets: Mapping[str, Maps], validation: float
) -> tuple[Split, Split, Split]:
    """Training, validation and test scenes of the data set: `train`, a share of it held out, and `val`."""
    folder = sources.find(name, data)
    everything, test = (read_split(folder / part, targets) for part in ("train", "val"))
    return *held_out(everything, validation), test


def read_split(folder: Path, targets: Mapping[str, Maps]) -> Split:
    """All scenes of a folder: `image`, and the maps of each task. Maps without channels are classes."""
    names = _names(folder, [IMAGE, *targets.values()])
    height, width = _array(folder, names[0], IMAGE, None).shape[:2]
    images = torch.empty(len(names), 3, height, width, dtype=torch.uint8)
    found = {task: _empty(len(names), maps, height, width) for task, maps in targets.items()}
    for number, name in enumerate(names):
        image = torch.from_numpy(_array(folder, name, IMAGE, (height, width)))
        # Eight bits a channel, as the camera gave them, take a quarter of the memory.
        images[number] = (image.permute(2, 0, 1) * 255).round().to(torch.uint8)
        for task, maps in targets.items():
            array = torch.from_numpy(_array(folder, name, maps, (height, width)))
            found[task][number] = array if maps.channels is None else array.permute(2, 0, 1)
    return Split(images, found)


def held_out(everything: Split, share: float) -> tuple[Split, Split]:
    """Training and validation scenes: a share of them is held out, evenly spread over the set; 0 trains on all."""
    if not 0 <= share < 1:
        raise ValueError(f"validation is {share}: give a share of the training scenes from 0 to below 1")
    task = next(iter(everything.targets))
    counted = torch.arange(everything.length(task) + 1, dtype=torch.float64) * share
    chosen = counted.floor().diff().bool()
    # All scenes without a copy, where none is held out.
    train = everything.rows(dict.fromkeys(everything.targets, ~chosen)) if chosen.any() else everything
    return train, everything.rows(dict.fromkeys(everything.targets, chosen))


def _empty(count: int, maps: Maps, height: int, width: int) -> torch.Tensor:
    if maps.channels is None:
        return torch.empty(count, height, width, dtype=torch.int8)
    return torch.empty(count, maps.channels, height, width)


def _names(folder: Path, kinds: list[Maps]) -> list[str]:
    """Names of the scenes' files, the same in all folders, in the order of their numbers."""
    found = {maps.folder: {path.name for path in (folder / maps.folder).glob("*.npy")} for maps in kinds}
    for kind, names in found.items():
        missing = set().union(*found.values()) - names
        if missing or not names:
            example = min(missing, default="0.npy")
            raise DataNotFoundError(
                f"{folder / kind / example} is missing: MTAN's format has the same numbered files in "
                f"{', '.join(found)} of train and val; unpack it again."
            )
    return sorted(found[IMAGE.folder], key=lambda name: (len(name), name))


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
