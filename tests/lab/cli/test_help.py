"""What `--help` promises is what a command does."""

import re

import pytest
import typer

from commands import excessmtl, refused
from excessmtl.lab.cli.app import COMMANDS, app


def parameters_of(name):
    return typer.main.get_command(app).get_command(None, name).params


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_text_names_only_options_that_the_command_has(name):
    parameters = parameters_of(name)
    known = {option for own in parameters for option in (*own.opts, *own.secondary_opts)}
    texts = " ".join(own.help or "" for own in parameters if hasattr(own, "help"))
    assert set(re.findall(r"--[a-z-]+", texts)) <= known


def test_the_default_of_the_method_in_a_report_is_one_row_of_excess():
    (method,) = [own for own in parameters_of("report") if own.name == "method"]
    assert "the one row of excess with its default options" in method.help


@pytest.mark.parametrize("command", [["diagnose", "run"], ["crossval", "digits", "--out", "out"]])
@pytest.mark.parametrize("name", ["suspects.txt", "suspects", "suspects.csv.gz"])
def test_suspects_are_written_as_csv_or_parquet_and_as_nothing_else(tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    refused(excessmtl(*command, "--suspects", name), f"--suspects {name} must end in .csv or .parquet")
    assert list(tmp_path.iterdir()) == []
