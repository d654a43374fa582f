"""Which versions made the runs, and which made the page."""

import platform
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import yaml

import excessmtl
from excessmtl.files import read_text
from excessmtl.lab.compare.courses import file_in
from excessmtl.lab.schema import Word, checked, mapping


def page_versions() -> dict[str, str]:
    """Of this package and what the page is made with."""
    packages = {name: version(name) for name in ("plotly", "pandas", "jinja2")}
    return {"excessmtl": excessmtl.__version__, "Python": platform.python_version(), **packages}


def run_versions(folder: Path, frame: pd.DataFrame) -> dict[str, str]:
    """What the config.yaml of the runs say, all versions of a package together; empty without run folders."""
    found: dict[str, set[str]] = {}
    for place in frame["folder"]:
        path = file_in(folder, place, "config.yaml")
        for package, number in _recorded(path).items() if path is not None else ():
            found.setdefault(package, set()).add(str(number))
    return {package: " and ".join(sorted(numbers)) for package, numbers in found.items()}


def _recorded(path: Path) -> dict[str, str | None]:
    try:
        plain = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not YAML ({reason}); delete the run or make it again") from error
    versions = mapping(plain, str(path)).get("versions") or {}
    return checked(dict[Word, str | None], versions, f"versions in {path}")
