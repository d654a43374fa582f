"""Pictures in the folder of the runs, as `excessmtl reproduce` draws them, embedded in the page."""

import base64
from pathlib import Path

from excessmtl.lab.compare.courses import is_plain_file

_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


def pictures_in(folder: Path) -> list[dict[str, str]]:
    """Name and address of every picture below `folder`, once: of the same picture as SVG and PNG, the smaller file.

    An address holds the whole picture and needs no other file.
    Links that lead out of the folder are left out: the page may be passed on, and what they point to may not.
    """
    found: dict[Path, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _KINDS and is_plain_file(path, folder):
            other = found.get(path.with_suffix(""))
            if other is None or path.stat().st_size < other.stat().st_size:
                found[path.with_suffix("")] = path
    return [{"name": name.name, "address": _address(path)} for name, path in found.items()]


def _address(path: Path) -> str:
    return f"data:{_KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
