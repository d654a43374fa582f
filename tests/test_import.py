"""`import excessmtl` brings in torch and numpy, and of other packages only what these bring in themselves.

The command line brings in little more."""

import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest

import excessmtl
from commands import ENVIRONMENT

SCRIPT = """
import json, sys, torch, numpy
before = set(sys.modules)
import excessmtl
library = set(sys.modules)
import excessmtl.lab.cli.app
print(json.dumps([sorted({name.split('.')[0] for name in more}) for more in (library - before, set(sys.modules))]))
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)


def test_the_library_brings_in_torch_and_numpy_and_the_command_line_nothing_that_only_training_needs():
    of_library, of_command_line = map(set, json.loads(run(SCRIPT).stdout))
    assert of_library - {"torch", "numpy", *sys.stdlib_module_names} == {"excessmtl"}
    assert not {"lightning", "torchmetrics", "transformers", "scipy", "matplotlib", "plotly"} & of_command_line


def test_every_public_name_is_there_and_no_other():
    for name in excessmtl.__all__:
        assert getattr(excessmtl, name) is not None
    assert {name for name in dir(excessmtl) if not name.startswith("__")} == set(excessmtl.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = excessmtl.no_such_name


def test_every_public_name_is_in_the_api_reference():
    """And everything that the reference names exists; a module counts as documented where its members are."""
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    documented = set()
    for section in page.split("\n::: ")[1:]:
        path, members = section.split()[0], re.search(r"members: \[(.+)\]", section)
        own = resolve_name(path)
        documented |= {own, *(resolve_name(path.rsplit(".", parents)[0]) for parents in (1, 2))}
        if isinstance(own, ModuleType):
            public = [name for name, value in vars(own).items() if getattr(value, "__module__", "") == own.__name__]
            documented |= {getattr(own, name) for name in (members[1].split(", ") if members else public)}
    assert [name for name in excessmtl.__all__ if getattr(excessmtl, name) not in documented] == []


def test_the_help_of_create_lists_every_argument():
    text = inspect.getdoc(excessmtl.create)
    of_balancer = inspect.signature(excessmtl.Balancer).parameters
    for argument in ("name", *(name for name in of_balancer if name != "rule"), "options"):
        assert f"\n    {argument}: " in text, argument


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder


class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Blocked())
"""
EXTRAS = (
    *("pandas", "typer", "rich", "yaml", "lightning", "scipy", "joblib", "plotly", "jinja2", "filelock", "pydantic"),
    "torchmetrics",
)

TRIED = """
from pkgutil import resolve_name
for name in ("excessmtl.lab:train", "excessmtl.lab:sweep", "excessmtl:Recorder"):
    try:
        resolve_name(name)
    except ImportError as error:
        print(error)
from excessmtl.lab.cli import main
main()
"""


def test_without_its_packages_the_laboratory_says_how_to_get_them():
    """Where nothing but torch and numpy is installed."""
    result = run(BLOCKED.format(extras=EXTRAS) + TRIED)
    told = [*result.stdout.splitlines(), result.stderr.splitlines()[-1]]
    for what, sentence in zip(
        ("excessmtl.lab", "excessmtl.lab", "excessmtl.Recorder", "the command line"), told, strict=True
    ):
        advice = rf'{what} needs the package \w+; in the folder of the repository, run pip install "\.\[lab\]"$'
        assert re.search(advice, sentence), sentence
    assert result.returncode == 2


def test_the_advice_names_extras_that_exist():
    root = Path(__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    files = [path for places in ("*.md", "docs/*.md", "examples/*", "src/**/*.py") for path in root.glob(places)]
    texts = [path.read_text(encoding="utf-8") for path in files]
    advised = {found for text in texts for found in re.findall(r"pip install [^\n]*?\[(\w+)\]", text)}
    assert {"lab", "hf", "ray", "dask"} <= advised <= set(extras)
    # Nothing is published under this name: such a command finds nothing, or somebody else's package.
    assert not [text for text in texts if re.search(r"pip install [\"']?excessmtl", text)]
