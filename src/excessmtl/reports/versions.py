"""Which versions made the runs, and which made the page."""

import platform
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import yaml

import excessmtl

# Hundreds of files: the parser in C, where PyYAML was built with it, is ten times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def page_versions() -> dict[str, str]:
    """Of this package and what the page is made with."""
    packages = {name: version(name) for name in ("plotly", "pandas", "jinja2")}
    return {"excessmtl": excessmtl.__version__, "Python": platform.python_version(), **packages}


def run_versions(folder: Path, frame: pd.DataFrame) -> dict[str, str]:
    """What the config.yaml of the runs say, all versions of a package together; empty without run folders."""
    found: dict[str, set[str]] = {}
    for place in frame["folder"]:
        path = folder / str(place) / "config.yaml"
        if path.is_file():
            recorded = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader).get("versions") or {}
            for package, number in recorded.items():
                found.setdefault(package, set()).add(str(number))
    return {package: " and ".join(sorted(numbers)) for package, numbers in found.items()}
