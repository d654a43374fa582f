"""`excessmtl methods`: one row for every method."""

from typer.testing import CliRunner

import excessmtl
from excessmtl.cli.app import app


def test_every_method_has_a_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    result = CliRunner().invoke(app, ["methods"])
    assert result.exit_code == 0
    shown = [line.split("│")[1].strip() for line in result.stdout.splitlines() if line.startswith("│")]
    assert shown == excessmtl.list_methods()
    assert "Sener & Koltun 2018" in result.stdout
