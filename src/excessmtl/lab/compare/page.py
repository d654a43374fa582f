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
_MARKED = re.compile(r"<!-- (\S+) -->.*?<!-- /\1 -->", flags=re.DOTALL)


@dataclass(frozen=True)
class Page:
    """The file, and what each of its generated parts says now."""

    path: Path
    parts: Mapping[str, Callable[[], Part]]

    def text(self) -> str:
        """The document with every part filled anew."""
        page = read_text(self.path)
        names = _MARKED.findall(page)
        if sorted(names) != sorted(self.parts) or page.count("<!-- ") != 2 * len(names):
            raise ValueError(f"{self.path} must hold <!-- part --> <!-- /part --> once for {list(self.parts)} alone")
        return _MARKED.sub(self._filled, page)

    def _filled(self, marked: re.Match[str]) -> str:
        name, content = marked[1], self.parts[marked[1]]()
        text = content.as_markdown() if isinstance(content, Table) else content
        return f"<!-- {name} -->\n\n{text.strip()}\n\n<!-- /{name} -->"

    def write(self) -> bool:
        """Fill the file; whether it has changed."""
        text = self.text()
        changed = text != read_text(self.path)
        if changed:
            write_whole(self.path, text.encode())
        return changed
