"""A Markdown document whose generated parts stand between markers and are filled from committed files.

    <!-- losses -->

    | method | loss |
    ...

    <!-- /losses -->

What stands outside the markers is written by people and stays as it is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from excessmtl.files import read_text, write_whole
from excessmtl.lab.compare.table import Table

Part = str | Table
_MARKER = re.compile(r"<!-- (/?)(\S+) -->")


@dataclass(frozen=True)
class Page:
    """The file, and what each of its generated parts says now."""

    path: Path
    parts: Mapping[str, Callable[[], Part]]

    def text(self) -> str:
        """The document with every part filled anew."""
        page = read_text(self.path)
        markers = [slash + name for slash, name in _MARKER.findall(page)]
        wanted = [marker for name in self.parts for marker in (name, f"/{name}")]
        if sorted(markers) != sorted(wanted):
            raise ValueError(f"{self.path} must hold the markers {wanted}, each once, found {markers}")
        for name, part in self.parts.items():
            start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
            before, rest = page.split(start)
            if end not in rest:
                raise ValueError(f"{self.path}: {end} stands before {start}; exchange them")
            filled = part()
            new = filled.as_markdown() if isinstance(filled, Table) else filled
            page = f"{before}{start}\n\n{new.strip()}\n\n{end}{rest.split(end)[1]}"
        return page

    def write(self) -> bool:
        """Fill the file; whether it has changed."""
        text = self.text()
        changed = text != read_text(self.path)
        if changed:
            write_whole(self.path, text.encode())
        return changed
