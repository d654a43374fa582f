"""Many pictures decoded once into one file, uint8 [n, 3, size, size], which is then read through the memory map."""

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from excessmtl.files import atomic_write


def decode(folder: Path, names: Sequence[str], size: int, stored: Path, source: Path) -> None:
    """Write the pictures, resized to size x size, one after the other as one uint8 array.

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
