"""Files that are written: new names and plain files are replaced whole; links, pipes, sockets and devices are not."""

import os
import socket
import stat
from pathlib import Path

import pytest

from commands import excessmtl, refused
from excessmtl import lab
from excessmtl.files import atomic_write, write_whole
from excessmtl.lab.paper.subjects import UNIFORM
from made_up_runs import as_frame, made_up_run


def device(path):
    """A character device of its own name; making one takes the rights for it."""
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except (AttributeError, PermissionError):
        pytest.skip("no device can be made here")


def link(path):
    path.with_name("target.txt").write_text("old")
    path.symlink_to(path.with_name("target.txt"))


def link_to_a_pipe(path):
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


def bound_socket(path):
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


ODD = {
    "a pipe": os.mkfifo,
    "a socket": bound_socket,
    "a device": device,
    "a folder": os.mkdir,
    "a link": link,
    "a link ": link_to_a_pipe,
    "a link  ": lambda path: path.symlink_to(path.with_name("nowhere")),
}


@pytest.fixture(params=ODD)
def odd(request, tmp_path, monkeypatch):
    """Something that is no plain file, and what it is called."""
    if os.name != "posix":
        pytest.skip("no such files on this system")
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    path = Path("out.html")
    ODD[request.param](path)
    return path, request.param.strip()


def state(path):
    """What stands at a name, not what it leads to."""
    found = path.lstat()
    return stat.S_IFMT(found.st_mode), found.st_ino, os.readlink(path) if path.is_symlink() else None


def test_it_stays_as_it_is(odd):
    path, words = odd
    before, others = state(path), set(path.parent.iterdir())
    with pytest.raises(ValueError, match=rf"out\.html is {words}, and only a plain file can be written; name a file"):
        write_whole(path, b"new")
    assert state(path) == before
    assert set(path.parent.iterdir()) == others
    assert not Path("target.txt").exists() or Path("target.txt").read_text() == "old"


@pytest.fixture
def runs(tmp_path):
    from excessmtl.lab.compare.collect import write_table

    place = tmp_path / "runs"
    made = [made_up_run("multimnist", UNIFORM, 0.4, seed, clean=0.9, noisy=0.5, weight=0.6) for seed in (0, 1)]
    write_table(as_frame(made), place / "runs.csv")
    return place


@pytest.mark.parametrize(
    "command", [["report", "runs", "-o"], ["diagnose", "no-run", "--suspects"], ["bench", "--quick", "--json"]]
)
def test_commands_refuse_it_before_they_begin(odd, runs, command):
    path, words = odd
    before = state(path)
    refused(excessmtl(*command, path), words)
    assert state(path) == before


def test_a_plain_file_and_a_new_name_below_a_link_are_written(tmp_path, runs):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for _ in range(2):
        lab.report(runs, tmp_path / "link" / "report.html")
    assert (tmp_path / "folder" / "report.html").stat().st_size > 1000


def test_an_atomic_write_keeps_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "deep" / "file"
    with atomic_write(path) as file:
        file.write(b"old")

    def stop_half_way():
        with atomic_write(path) as file:
            file.write(b"new, but only ha")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop_half_way()
    assert path.read_bytes() == b"old"
    assert [file.name for file in path.parent.iterdir()] == ["file"]
