import gzip
from pathlib import Path

import numpy as np
import pytest

from excessmtl.lab.data.idx import parse_idx, read_idx, to_idx

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def test_the_format_byte_by_byte() -> None:
    assert to_idx(np.array([7, 9], np.uint8)) == bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_raw_and_gzipped_files_read_back(tmp_path: Path, pack: type[bytes]) -> None:
    path = tmp_path / "images"
    path.write_bytes(pack(to_idx(IMAGES)))
    assert (read_idx(path).numpy() == IMAGES).all()


@pytest.mark.parametrize(
    "content", [b"", b"\0\0", b"<html>", b"\0\0\x0d\x01" + bytes(8), b"\0\0\x08\x00", b"\0\0\x08\x09"]
)
def test_what_is_no_idx_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="page is not an IDX file"):
        parse_idx(content, "page")


@pytest.mark.parametrize(("change", "message"), [(slice(0, 10), "truncated"), (slice(0, -1), "39 bytes")])
def test_a_truncated_file_says_so(change: slice, message: str) -> None:
    with pytest.raises(ValueError, match=f"images.*{message}"):
        parse_idx(to_idx(IMAGES)[change], "images")


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="41 bytes, its header promises 40"):
        parse_idx(to_idx(IMAGES) + b"x", "images")


def test_a_damaged_gzip_file_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(to_idx(IMAGES))[:-6])
    with pytest.raises(ValueError, match=r"images\.gz is a damaged gzip file"):
        read_idx(path)


def test_only_bytes_can_be_stored() -> None:
    with pytest.raises(ValueError, match="float32"):
        to_idx(IMAGES.astype(np.float32))  # type: ignore[arg-type]
