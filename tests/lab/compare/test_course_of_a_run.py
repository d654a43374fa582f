"""Courses of training from files that may be damaged, made up, or not there."""

import io
import zipfile

import numpy as np
import pytest

from excessmtl.lab.compare.collect import read_epochs, read_steps
from excessmtl.lab.runs.folder import file_in
from excessmtl.lab.runs.summary import QUANTITIES


def archive(tasks=("a", "b"), **changes):
    values = {name: np.ones((5, 2), np.float32) for name in QUANTITIES} | changes
    file = io.BytesIO()
    np.savez_compressed(file, tasks=np.array(tasks), **values)
    return file.getvalue()


def huge():
    """A header that claims 32 GB in front of a few bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (4_000_000_000, 2)})
    with zipfile.ZipFile(io.BytesIO(archive())) as original, zipfile.ZipFile(made := io.BytesIO(), "w") as copy:
        for entry in original.namelist():
            copy.writestr(entry, header.getvalue() if entry == "losses.npy" else original.read(entry))
    return made.getvalue()


def test_steps_are_tables_with_a_column_per_task(tmp_path):
    (tmp_path / "steps.npz").write_bytes(archive(losses=np.arange(10, dtype=np.float32).reshape(5, 2)))
    steps = read_steps(tmp_path / "steps.npz")
    assert steps.losses["b"].tolist() == [1, 3, 5, 7, 9]
    assert steps.weights.shape == (5, 2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a zip file"),
        (b"PK\x03\x04 cut off", "not a zip file"),
        (archive(losses=np.ones(5, np.float32)), r"its arrays must be numbers of shape \[steps, 2 tasks\]"),
        (archive(losses=np.ones((4, 2), np.float32)), r"its arrays must be numbers of shape \[steps, 2 tasks\]"),
        (archive(tasks=("a",)), r"its arrays must be numbers of shape \[steps, 1 tasks\]"),
        (archive(losses=np.array([["x"] * 2] * 5)), r"its arrays must be numbers of shape \[steps, 2 tasks\]"),
        (archive(losses=np.array([[{}] * 2] * 5, dtype=object)), "Object arrays cannot be loaded"),
        (huge(), "(MemoryError|EOF)"),
    ],
)
def test_a_file_that_no_run_wrote_is_one_sentence(tmp_path, content, reason):
    (tmp_path / "steps.npz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"steps\.npz is not the steps\.npz of a run \(.*{reason}"):
        read_steps(tmp_path / "steps.npz")


def test_an_array_that_unpacks_to_gigabytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("excessmtl.lab.compare.collect._LARGEST", 100)
    (tmp_path / "steps.npz").write_bytes(archive())
    with pytest.raises(ValueError, match="an array has more than 100 bytes"):
        read_steps(tmp_path / "steps.npz")


@pytest.mark.parametrize("text", ["", "epoch,test/a\n0,much\n", 'a,b\n"unclosed', "a,b\n1,2,3\n4\n1,2,3,4\n"])
def test_metrics_that_no_run_wrote_are_one_sentence(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(ValueError, match=r"metrics\.csv is not the metrics\.csv of a run"):
        read_epochs(tmp_path / "metrics.csv")


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path):
    inside, outside = tmp_path / "runs" / "one", tmp_path / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "steps.npz").write_bytes(archive())
    (tmp_path / "runs" / "file").mkdir()
    (tmp_path / "runs" / "file" / "steps.npz").symlink_to(outside / "steps.npz")
    (tmp_path / "runs" / "folder").symlink_to(outside)
    (tmp_path / "runs" / "again").symlink_to(inside)
    assert file_in(tmp_path / "runs", "one", "steps.npz") == inside / "steps.npz"
    assert file_in(tmp_path / "runs", "again", "steps.npz") is not None
    for folder in ("file", "folder", "gone", "../elsewhere"):
        assert file_in(tmp_path / "runs", folder, "steps.npz") is None
