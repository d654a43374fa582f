"""`excessmtl methods`: one row for every method."""

from typer.testing import CliRunner

import excessmtl
from excessmtl.cli.app import app
from excessmtl.methods.catalogue import CATALOGUE


def test_every_method_has_a_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    result = CliRunner().invoke(app, ["methods"])
    assert result.exit_code == 0
    shown = [line.split("│")[1].strip() for line in result.stdout.splitlines() if line.startswith("│")]
    # Other tests of this process may have registered methods of their own.
    assert shown == [name for name in excessmtl.list_methods() if name in CATALOGUE]
    assert "Sener & Koltun 2018" in result.stdout
