"""Handwritten digits: the 5,000 that travel with the package, so that all of it runs offline, and MNIST's files.

IDX, the format of these files: a magic number, the dimensions in big-endian, then plain unsigned bytes.
"""

import gzip
import struct
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from excessmtl.lab.schema import explained

TRAIN_DIGITS = 4000
_UNSIGNED_BYTES = 8


@dataclass(frozen=True)
class Digits:
    """Images, uint8 [n, 28, 28], and their labels, int64 [n]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice | Tensor) -> "Digits":
        return Digits(self.images[which], self.labels[which])


def load_digits() -> tuple[Digits, Digits]:
    """4,000 digits to train on and 1,000 to test on: a subset of MNIST, every class equally often in both.

    The file is stored shuffled in rounds of ten, each class once per round: every slice that starts and ends
    at a multiple of ten is balanced, however many digits a benchmark takes.
    """
    path = resources.files(__package__).joinpath("bundled", "digits.npz")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        images = torch.from_numpy(stored["images"])
        labels = torch.from_numpy(stored["labels"]).long()
    digits = Digits(images, labels)
    return digits[:TRAIN_DIGITS], digits[TRAIN_DIGITS:]


def read_idx(path: Path) -> Tensor:
    """The uint8 tensor in an IDX file, raw or gzipped."""
    content = path.read_bytes()
    broken = (ValueError, OSError, EOFError, zlib.error, struct.error)
    with explained(f"{path} is not a whole IDX file of unsigned bytes", "fetch it again", *broken):
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        zero, kind, dimensions = struct.unpack_from(">HBB", content)
        if (zero, kind) != (0, _UNSIGNED_BYTES):
            raise ValueError(f"it begins with {content[:4].hex()}, not 0000080N")
        shape = struct.unpack_from(f">{dimensions}I", content, 4)
        # A copy, because a tensor over immutable bytes would not be writable.
        return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def to_idx(array: npt.NDArray[np.uint8]) -> bytes:
    """The bytes of an IDX file that holds the array."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, _UNSIGNED_BYTES, array.ndim, *array.shape) + array.tobytes()
