"""Which code decided a run: a short hash of the library's source, the same on every machine."""

import hashlib
import inspect
from functools import cache
from pathlib import Path

import excessmtl

LABORATORY = (*("diagnosis", "integrations", "lab", "__main__.py", "files.py"),)
"""Parts of the package that decide about no weight and no gradient."""
_DIGITS = 12


def code_of(rule: type | None = None) -> str:
    """The fingerprint of the library and, where it is one of the user's own, of the file that a rule is written in."""
    is_own = rule is not None and rule.__module__.partition(".")[0] != "excessmtl"
    return _code(inspect.getsourcefile(rule) if rule is not None and is_own else None)


@cache
def _code(rule: str | None) -> str:
    root = Path(excessmtl.__file__).parent
    files = [(path.relative_to(root), path) for path in root.rglob("*.py")]
    sources = {place.as_posix(): path for place, path in files if place.parts[0] not in LABORATORY}
    return fingerprint({**sources, **({} if rule is None else {"rule": Path(rule)})})


def fingerprint(sources: dict[str, Path]) -> str:
    """Of files by name: not of where they lie, in which order they are listed, or how their lines end."""
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()[:_DIGITS]
