"""IDX, the file format of MNIST: a magic number, the dimensions in big-endian, then plain unsigned bytes."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor, from_numpy

_UNSIGNED_BYTES = 8


def read_idx(path: Path) -> Tensor:
    """The uint8 tensor in an IDX file, raw or gzipped."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}); fetch it again.") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTES or not 1 <= content[3] <= 4:
        found = content[:4].hex() or "nothing"
        raise ValueError(f"{path} is not an IDX file of unsigned bytes: it begins with {found}, not 0000080N.")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise ValueError(f"{path} is truncated: {len(content)} bytes, its header alone has {header}.")
    shape = struct.unpack(f">{content[3]}I", content[4:header])
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise ValueError(f"{path} has {len(content):,} bytes, its header promises {expected:,}; fetch it again.")
    # A copy, because a tensor over immutable bytes would not be writable.
    return from_numpy(np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy())


def to_idx(array: npt.NDArray[np.uint8]) -> bytes:
    """The bytes of an IDX file that holds the array."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, _UNSIGNED_BYTES, array.ndim, *array.shape) + array.tobytes()
