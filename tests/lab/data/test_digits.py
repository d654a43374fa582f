"""The bundled digits, and the format of MNIST's files."""

import gzip

import numpy as np
import pytest
import torch

from excessmtl.lab.data.digits import load_digits, read_idx, to_idx

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
PAGE = b"<!DOCTYPE html>"


def test_no_digit_occurs_twice():
    assert len(torch.cat([part.images for part in load_digits()]).flatten(1).unique(dim=0)) == 5000


def test_labels_belong_to_the_images():
    """The mean picture of each class, learnt on one part, recognises the other: a shifted order would not."""
    train, test = load_digits()
    flat, other = (part.images.flatten(1).float() for part in (train, test))
    means = torch.stack([flat[train.labels == digit].mean(0) for digit in range(10)])
    assert (torch.cdist(other, means).argmin(1) == test.labels).float().mean() > 0.75


def test_the_format_to_the_byte():
    assert to_idx(np.array([7, 9], np.uint8)) == bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_tensor_comes_back_raw_and_gzipped(tmp_path, pack):
    path = tmp_path / "images"
    path.write_bytes(pack(to_idx(IMAGES)))
    assert (read_idx(path).numpy() == IMAGES).all()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (PAGE, "it begins with 3c21444f, not 0000080N"),
        (b"", "buffer of at least 4 bytes"),
        (to_idx(IMAGES)[:10], "buffer of at least 16 bytes"),
        (to_idx(IMAGES)[:-1], "cannot reshape array of size 23"),
        (to_idx(IMAGES) + b"x", "cannot reshape array of size 25"),
        (gzip.compress(to_idx(IMAGES), mtime=0)[:-6], "Compressed file ended"),
    ],
)
def test_other_files_are_refused(tmp_path, content, reason):
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"images is not a whole IDX file of unsigned bytes .*{reason}.*fetch it again"
    ):
        read_idx(tmp_path / "images")
