"""Pictures: many decoded once into one file that is read through the memory map, and the scaling of their pixels."""

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from excessmtl.files import atomic_write


def decode(folder: Path, names: Sequence[str], size: int, stored: Path, source: Path) -> None:
    """Write the pictures, resized to size x size, as one uint8 array [n, 3, size, size].

    `source`: what messages call the folder.
    """
    with atomic_write(stored) as file, ThreadPoolExecutor() as pool:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(names), 3, size, size)}
        np.lib.format.write_array_header_1_0(file, header)
        # By blocks: all pictures of a large tree would not fit into memory at once.
        for start in range(0, len(names), 256):
            for pixels in pool.map(partial(_pixels, folder, size, source), names[start : start + 256]):
                file.write(pixels)


def _pixels(folder: Path, size: int, source: Path, name: str) -> bytes:
    # Imported where it is used: the other benchmarks need no Pillow.
    from PIL import Image

    try:
        with Image.open(folder / name) as image:
            picture = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{source}: the picture '{name}' cannot be read ({error}); repair or remove it.") from error
    resized = picture.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized).transpose(2, 0, 1).tobytes()


def stamp_of(paths: Iterable[Path], *key: object) -> str:
    """Changes with the key, and with the name, size or time of change of a file."""
    stamp = hashlib.sha256(repr(key).encode())
    for path in paths:
        state = path.stat()
        stamp.update(repr((str(path), state.st_size, state.st_mtime_ns)).encode())
    return stamp.hexdigest()[:16]


def open_decoded(stored: Path) -> Tensor:
    """The pictures of a file that `decode` wrote; they stay in it until they are looked at."""
    # "c" maps privately: a tensor must be writable, the file must not change.
    return torch.from_numpy(np.load(stored, mmap_mode="c", allow_pickle=False))


@dataclass(frozen=True)
class PixelScaling:
    """uint8 images, [n, h, w] or [n, c, h, w], -> standardised floats [n, c, h, w]: a benchmark's `prepare`.

    `mean` and `std` have one number per channel, for pixels between 0 and 1.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Scale the images of a batch, wherever they lie."""
        images = images.unsqueeze(1) if images.ndim == 3 else images
        scale, shift = _constants(self.mean, self.std, images.device)
        return images.float() * scale + shift


@lru_cache(maxsize=16)
def _constants(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    # Kept per device: copying them there with every batch would make the host wait.
    scale = torch.tensor([1 / (255 * s) for s in std], device=device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=device)
    return scale[:, None, None], shift[:, None, None]


def pixel_scaling(images: Tensor) -> PixelScaling:
    """The scaling that standardises uint8 images, [n, h, w] or [n, c, h, w], channel by channel."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in images.unbind(1) if images.ndim == 4 else [images]:
        # Counting in blocks keeps the memory small where there are 60,000 images.
        blocks = [torch.bincount(block.flatten(), minlength=256) for block in torch.split(channel, 4096)]
        counts = torch.stack(blocks).sum(0)
        mean = float((counts * values).sum() / channel.numel())
        variance = float((counts * (values - mean) ** 2).sum() / channel.numel())
        means.append(mean)
        deviations.append(max(variance, 1e-12) ** 0.5)
    return PixelScaling(tuple(means), tuple(deviations))
