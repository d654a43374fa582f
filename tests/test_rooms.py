"""The packages of the laboratory import each other in one direction only, and the package never imports research/."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
LABORATORY = ("benchmarks", "training", "sweeps", "analysis", "paper", "reports", "cli")


def imported(path):
    """Modules that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def graph(rooms):
    """Package -> the other packages that its files import."""
    found = {room: set() for room in rooms}
    for room in rooms:
        for path in (SOURCE / "excessmtl" / room).rglob("*.py"):
            names = [name.split(".") for name in imported(path)]
            found[room] |= {name[1] for name in names if name[0] == "excessmtl" and len(name) > 1} & set(rooms) - {room}
    return found


def test_no_two_rooms_import_each_other():
    rooms = graph(LABORATORY)
    assert rooms["reports"] >= {"analysis", "paper"}  # the graph is not empty
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' -> '.join(error.args[1])}")


def test_statistics_know_nothing_of_what_is_made_of_them():
    assert not graph(LABORATORY)["analysis"] & {"sweeps", "paper", "reports", "cli"}


def test_nothing_in_the_package_imports_research():
    files = (SOURCE / "excessmtl").rglob("*.py")
    assert [path for path in files if any(name.split(".")[0] == "research" for name in imported(path))] == []
