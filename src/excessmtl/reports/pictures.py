"""Pictures in the folder of the runs, as `excessmtl reproduce` draws them, embedded in the page."""

import base64
from dataclasses import dataclass
from pathlib import Path

from excessmtl.analysis.courses import is_plain_file

_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Picture:
    """A picture as an address that needs no other file."""

    name: str
    address: str


def pictures_in(folder: Path) -> list[Picture]:
    """Every picture below `folder`, once: of the same picture as SVG and as PNG, the smaller file.

    Links that lead out of the folder are left out: the page may be passed on, and what they point to may not.
    """
    found: dict[Path, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _KINDS and is_plain_file(path, folder):
            other = found.get(path.with_suffix(""))
            if other is None or path.stat().st_size < other.stat().st_size:
                found[path.with_suffix("")] = path
    return [Picture(name.name, _address(path)) for name, path in found.items()]


def _address(path: Path) -> str:
    return f"data:{_KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
