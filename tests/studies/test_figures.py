"""The registry behind `excessmtl reproduce`."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from excessmtl.cli.app import app
from excessmtl.studies import figures


def cli(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def _toy(monkeypatch):
    figures.registry()
    monkeypatch.setattr(figures, "_FIGURES", {})

    @figures.figure("toy", "a line")
    def draw(scale, out):
        picture = figures.canvas(2, 2)
        picture.subplots().plot([0, 1], [0, 1])
        return figures.save_picture(picture, out, "toy") + figures.save_table(
            [{"scale": scale, "x": 1 / 3}], out, "toy"
        )


def test_the_figures_are_listed():
    result = cli("reproduce", "--list")
    assert result.exit_code == 0
    assert "theory" in result.output
    assert "conceptual" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "unknown figure 'nothing'; the figures are conceptual, theory and all"),
        (["theory", "--scale", "huge"], "--scale must be quick or paper, found 'huge'"),
        ([], "name a figure: conceptual, theory or all"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message):
    result = cli("reproduce", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.usefixtures("_toy")
def test_a_figure_becomes_png_svg_and_csv(tmp_path):
    result = cli("reproduce", "all", "--scale", "paper", "--out", tmp_path / "deep" / "folder")
    assert result.exit_code == 0, result.output
    written = sorted(path.name for path in (tmp_path / "deep" / "folder").iterdir())
    assert written == ["toy.csv", "toy.png", "toy.svg"]
    assert (tmp_path / "deep/folder/toy.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "deep/folder/toy.csv")
    assert table.scale.item() == "paper"
    assert table.x.item() == pytest.approx(1 / 3, rel=1e-5)


@pytest.mark.slow
def test_the_quick_study_writes_everything(tmp_path):
    result = cli("reproduce", "all", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    names = {path.name for path in tmp_path.iterdir()}
    assert {"theory_convergence.csv", "theory_stationarity.png", "conceptual.svg", "conceptual.csv"} <= names
    rates = pd.read_csv(tmp_path / "theory_rates.csv")
    assert rates.under_bound.all()
    assert (rates.rate[rates.long_enough] >= 0.4).all()
