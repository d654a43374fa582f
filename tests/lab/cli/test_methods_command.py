"""`excessmtl methods`: one row for every method."""

from typer.testing import CliRunner

import excessmtl
from excessmtl.lab.cli.app import app
from excessmtl.methods.catalogue import CATALOGUE


def test_every_method_has_a_row():
    result = CliRunner().invoke(app, ["methods"])
    assert result.exit_code == 0
    cells = [line.split("│")[1].strip() for line in result.stdout.splitlines() if line.startswith("│")]
    shown = [cell for cell in cells if cell]  # the other lines of a row are empty here
    # Other tests of this process may have registered methods of their own.
    assert shown == [name for name in excessmtl.list_methods() if name in CATALOGUE]
    assert "Koltun" in result.stdout
