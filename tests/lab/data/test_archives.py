import random
import tarfile

import pytest

from excessmtl.lab.data.downloads import is_archive, unpacked
from tiny_data import write_archive

FILES = {"top/a.txt": b"alpha", "top/b.txt": b"beta"}


@pytest.fixture(params=["files.zip", "files.tar.xz"])
def place(request, tmp_path):
    return tmp_path / str(request.param)


def test_files_are_unpacked_into_a_folder_that_is_gone_afterwards(place):
    assert is_archive(write_archive(place, FILES))
    with unpacked(place) as root:
        assert {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.txt")} == FILES
    assert not root.exists()


@pytest.mark.parametrize("name", ["../escape.txt", "top/../../escape.txt"])
def test_members_that_point_outside_are_refused(place, name):
    with (
        pytest.raises(ValueError, match=r"should not be trusted .*outside"),
        unpacked(write_archive(place, {name: b"!"})),
    ):
        pass


def test_a_link_to_another_file_is_refused(tmp_path):
    with tarfile.open(tmp_path / "links.tar", "w") as tar:
        member = tarfile.TarInfo("top/a.txt")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        tar.addfile(member)
    with pytest.raises(ValueError, match="should not be trusted"), unpacked(tmp_path / "links.tar"):
        pass


def test_a_truncated_archive_says_so(place):
    write_archive(place, {"a.txt": random.Random(0).randbytes(20_000)})
    place.write_bytes(place.read_bytes()[:10_000])
    with pytest.raises(ValueError, match="is damaged"), unpacked(place):
        pass
