"""What a report is made of: sections, each with a heading, an anchor and what it shows of the collected runs.

A package adds sections of its own with a module `sections` that holds a tuple `SECTIONS`. A report shows them where it
is asked to (`excessmtl report DIR --sections NAME`), or where the folder of the runs itself names the package.
"""

import importlib
import importlib.util
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from excessmtl.files import is_plain_file, read_text
from excessmtl.lab.compare.settings import Setting
from excessmtl.lab.reports.pictures import address
from excessmtl.lab.runs.folder import SECTIONS
from excessmtl.lab.schema import Word, checked, explained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABORATORY = "excessmtl.lab"


@dataclass(frozen=True)
class Collected:
    """What a report is about: the folder, and its runs by what may be compared."""

    folder: Path
    settings: Sequence[Setting]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per run."""
        return pd.concat([setting.runs for setting in self.settings], ignore_index=True)


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    title: str
    anchor: str
    """Its place in the page. An added section with the anchor of another one takes the place of that."""
    content: "Callable[[Collected], Markup | Figure | None]"
    """HTML (see `fill`) or a picture; None: these runs do not show it."""

    def html(self, runs: Collected) -> Markup | None:
        """What stands below the heading."""
        content = self.content(runs)
        if content is None or isinstance(content, Markup):
            return content
        file = io.BytesIO()
        content.savefig(file, format="svg", metadata={"Date": None})
        picture = {"name": self.title, "address": address(file.getvalue(), ".svg")}
        return fill("excessmtl.lab.reports", "pictures.html.j2", about="", pictures=[picture])


def fill(package: str, template: str, **values: Any) -> Markup:
    """A template in the folder `templates` of a package as HTML; every text is escaped."""
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return Markup(environment.get_template(template).render(**values))


def sections_named(names: Iterable[str]) -> list[Section]:
    """The sections of packages, by their name in the laboratory, such as `paper`, or by the full name of your own."""
    found: list[Section] = []
    for name in dict.fromkeys(names):
        module = next((own for own in (f"{_LABORATORY}.{name}", name) if _has_sections(own)), None)
        if module is None:
            raise ValueError(f"there is no package {name!r} with a module `sections`; name one that can be imported")
        found += importlib.import_module(f"{module}.sections").SECTIONS
    return found


def recorded(folder: Path) -> list[str]:
    """The packages that the folder names. It may come from anywhere, so only those of the laboratory are taken."""
    path = folder / SECTIONS
    if not is_plain_file(path, folder):
        return []
    with explained(f"{path} cannot be read", "delete it, and use --sections", ValueError, RecursionError):
        names: list[str] = checked(list[Word], json.loads(read_text(path)), "it")
        unknown = [name for name in names if not (name.isidentifier() and _has_sections(f"{_LABORATORY}.{name}"))]
        if unknown:
            raise ValueError(f"no package of the laboratory is called {unknown[0]!r}")
    return names


def _has_sections(package: str) -> bool:
    try:
        return importlib.util.find_spec(f"{package}.sections") is not None
    except (ModuleNotFoundError, ValueError):  # no such package, or nothing that a package could be called
        return False
