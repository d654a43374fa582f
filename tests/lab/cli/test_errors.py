"""What the command line makes of mishaps."""

import pytest
import torch
import typer

from excessmtl.lab.cli.app import plain_errors


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("noise must be between 0 and 1"), 2, "error: noise must be between 0 and 1\n"),
        (FileNotFoundError(2, "No such file", "a.yaml"), 2, "error: cannot read or write a.yaml: No such file\n"),
        (torch.OutOfMemoryError(), 2, "error: the device does not have enough memory; lower --batch-size\n"),
        (KeyboardInterrupt(), 130, "interrupted; type it again\n"),
    ],
)
def test_a_mishap_is_one_line_and_an_exit_code(error, code, line, capsys):
    def command():
        raise error

    with pytest.raises(typer.Exit) as stopped:
        plain_errors(command, interrupted="type it again")()
    assert stopped.value.exit_code == code
    assert capsys.readouterr().err == line


def test_a_mistake_of_ours_keeps_its_traceback():
    @plain_errors
    def command():
        raise KeyError("of ours")

    with pytest.raises(KeyError, match="of ours"):
        command()


@pytest.mark.parametrize("surfaces_as", [ValueError, OSError, RuntimeError])
def test_ctrl_c_while_a_file_is_written_is_still_ctrl_c(surfaces_as):
    @plain_errors
    def command():
        try:
            raise KeyboardInterrupt
        finally:
            raise surfaces_as("cannot close the file while it is being written")

    with pytest.raises(typer.Exit) as stopped:
        command()
    assert stopped.value.exit_code == 130
