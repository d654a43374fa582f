import gzip
from pathlib import Path

import numpy as np
import pytest

from excessmtl.lab.data.digits import read_idx, to_idx

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
PAGE = b"<!DOCTYPE html>"


def test_the_format_to_the_byte() -> None:
    assert to_idx(np.array([7, 9], np.uint8)) == bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_tensor_comes_back_raw_and_gzipped(tmp_path: Path, pack) -> None:
    path = tmp_path / "images"
    path.write_bytes(pack(to_idx(IMAGES)))
    assert (read_idx(path).numpy() == IMAGES).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PAGE, "is not an IDX file of unsigned bytes: it begins with 3c21444f"),
        (b"", "begins with nothing"),
        (to_idx(IMAGES)[:10], "is truncated: 10 bytes, its header alone has 16"),
        (to_idx(IMAGES)[:-1], "has 39 bytes, its header promises 40"),
        (to_idx(IMAGES) + b"x", "has 41 bytes, its header promises 40"),
        (gzip.compress(to_idx(IMAGES))[:-6], "is a damaged gzip file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "images")
