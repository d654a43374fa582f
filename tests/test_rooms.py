"""Packages import each other in one direction only; files are read and written as UTF-8 whatever the locale says."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
LABORATORY = ("data", "runs", "training", "studies", "compare", "paper", "reports", "cli", "speed")
LIBRARY = (
    *("distributed", "graph", "gradients", "solvers", "losses", "methods", "excess", "step", "recording"),
    *("integrations", "diagnosis", "architectures", "testing"),
)
ON_THE_LIBRARY = {"lab", "__main__"}


@cache
def imported(path):
    """Modules that a file imports, also inside of functions."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return modules


@cache
def graph(rooms):
    """Package -> the other packages that its files import."""
    parent = "excessmtl.lab" if rooms is LABORATORY else "excessmtl"
    imports = {}
    for room in rooms:
        files = (SOURCE / parent.replace(".", "/") / room).rglob("*.py")
        imports[room] = set().union(*(rooms_in(path, parent) for path in files)) & set(rooms) - {room}
    return imports


def rooms_in(path, parent="excessmtl"):
    """Packages and modules right below `parent` that a file imports."""
    return {name.removeprefix(f"{parent}.").split(".")[0] for name in imported(path) if name.startswith(f"{parent}.")}


@pytest.mark.parametrize(
    ("half", "known"), [(LABORATORY, ("paper", {"compare", "reports"})), (LIBRARY, ("step", {"gradients", "methods"}))]
)
def test_no_two_rooms_import_each_other(half, known):
    rooms = graph(half)
    room, others = known
    assert rooms[room] >= others  # the graph is not empty
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' -> '.join(error.args[1])}")


def test_what_a_room_may_know():
    assert not graph(LABORATORY)["compare"] & {"studies", "paper", "reports", "cli"}  # what is made of statistics
    assert graph(LABORATORY)["reports"] == {"compare", "data", "runs", "training"}  # no paper
    assert graph(LIBRARY)["graph"] == {"distributed"}
    assert graph(LIBRARY)["gradients"] == {"distributed", "graph"}  # no method, no step, no recording


def test_one_backward_pass_per_task_knows_no_quicker_way():
    ways = {"linear_heads", "losses_only", "one_pass", "through_trunk"}
    names = imported(SOURCE / "excessmtl/gradients/any_graph.py")
    known = {name.split(".")[2] for name in names if name.count(".") > 1}
    assert "task_gradients" in known
    assert not known & ways


def test_the_library_imports_nothing_of_the_laboratory():
    """Everything but the laboratory, and what is made with both."""
    package = SOURCE / "excessmtl"
    rooms = {path: path.relative_to(package).with_suffix("").parts[0] for path in package.rglob("*.py")}
    files = [path for path, room in rooms.items() if room not in ON_THE_LIBRARY]
    assert {"balancer.py", "state.py", "one_pass.py", "any_graph.py", "robust.py"} <= {path.name for path in files}
    assert {path: rooms_in(path) & ON_THE_LIBRARY for path in files if rooms_in(path) & ON_THE_LIBRARY} == {}


def test_nothing_in_the_package_imports_research():
    files = (SOURCE / "excessmtl").rglob("*.py")
    assert [path for path in files if any(name.split(".")[0] == "research" for name in imported(path))] == []


def unnamed(path):
    """Line numbers of calls that leave the encoding to the locale."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        mode = [own.value for own in [*node.args, *(k.value for k in node.keywords)] if isinstance(own, ast.Constant)]
        method = isinstance(node.func, ast.Attribute)  # `read_text(path)`, a function, is ours and reads UTF-8
        name = node.func.attr if method else getattr(node.func, "id", "")
        if name in ("read_text", "write_text") if method else name == "open" and "b" not in str(mode):
            yield node.lineno


def test_every_text_file_names_its_encoding():
    files = sorted((SOURCE / "excessmtl").rglob("*.py"))
    assert len(files) > 100
    assert [f"{path.relative_to(SOURCE)}:{line}" for path in files for line in unnamed(path)] == []
