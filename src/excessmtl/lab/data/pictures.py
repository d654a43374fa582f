"""Many pictures decoded once into one file, uint8 [n, 3, size, size], which is then read through the memory map."""

import hashlib
import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from excessmtl.files import atomic_write


def decode(root: Path, contents: Iterator[tuple[str, bytes]], order: list[str], size: int, stored: Path) -> None:
    """Write the pictures, resized to size x size, one after the other in this order, as one uint8 array."""
    place = {name: position for position, name in enumerate(order)}
    row = 3 * size * size
    with atomic_write(stored) as file, ThreadPoolExecutor() as pool:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(order), 3, size, size)}
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        file.truncate(start + len(order) * row)
        # By blocks: all pictures of a large tree would not fit into memory at once.
        while block := list(islice(contents, 256)):
            for name, pixels in pool.map(partial(_pixels, root, size), block):
                file.seek(start + place[name] * row)
                file.write(pixels)


def _pixels(root: Path, size: int, named: tuple[str, bytes]) -> tuple[str, bytes]:
    # Imported where it is used: the other benchmarks need no Pillow.
    from PIL import Image

    name, content = named
    try:
        with Image.open(io.BytesIO(content)) as image:
            picture = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{root}: the picture '{name}' cannot be read ({error}); repair or remove it.") from error
    resized = picture.resize((size, size), Image.Resampling.BILINEAR)
    return name, np.asarray(resized).transpose(2, 0, 1).tobytes()


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
