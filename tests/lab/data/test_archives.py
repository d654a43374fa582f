import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from excessmtl.lab.data.archives import ArchiveError, is_archive, member_names, read_members

FILES = {"top/a.txt": b"alpha", "top/b.txt": b"beta"}


def make(path: Path, files: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as opened:
            for name, content in files.items():
                opened.writestr(name, content)
    else:
        with tarfile.open(path, "w:xz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture(params=["files.zip", "files.tar.xz"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_members_are_listed_and_read_by_exact_name(place: Path) -> None:
    archive = make(place, FILES)
    assert is_archive(archive)
    assert member_names(archive) == list(FILES)
    assert dict(read_members(archive, ["top/b.txt"])) == {"top/b.txt": b"beta"}


@pytest.mark.parametrize("name", ["../escape.txt", "/escape.txt", "top/../../escape.txt", "..\\escape.txt", "C:/e.txt"])
def test_members_that_point_outside_are_refused(place: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="points outside"):
        member_names(make(place, {**FILES, name: b"!"}))


def test_reading_writes_no_file(place: Path) -> None:
    archive = make(place, {"../escape.txt": b"!"})
    assert dict(read_members(archive, ["../escape.txt"])) == {"../escape.txt": b"!"}
    assert [path.name for path in place.parent.rglob("*")] == [place.name]
    assert not (place.parent.parent / "escape.txt").exists()


def test_a_missing_member_is_named(place: Path) -> None:
    with pytest.raises(ArchiveError, match=r"no plain file 'top/c\.txt'"):
        list(read_members(make(place, FILES), ["top/c.txt"]))


def test_a_link_is_no_plain_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    archive = tmp_path / "links.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("top/a.txt")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        tar.addfile(member)
    assert member_names(archive) == []
    with pytest.raises(ArchiveError, match="no plain file"):
        list(read_members(archive, ["top/a.txt"]))


def test_a_truncated_archive_says_so(place: Path) -> None:
    make(place, {"a.txt": random.Random(0).randbytes(20_000)})
    place.write_bytes(place.read_bytes()[:10_000])
    with pytest.raises(ArchiveError, match="damaged"):
        list(read_members(place, ["a.txt"]))
