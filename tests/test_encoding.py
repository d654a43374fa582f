"""Text files are read and written as UTF-8 whatever the locale says."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "excessmtl"


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
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    assert [f"{path.relative_to(SOURCE)}:{line}" for path in files for line in unnamed(path)] == []
