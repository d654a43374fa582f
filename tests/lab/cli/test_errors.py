"""What the command line makes of mishaps."""

import pytest
import typer

from excessmtl.lab.cli.terminal import plain_errors


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


def test_a_mistake_is_exit_code_2(capsys):
    @plain_errors
    def command():
        raise ValueError("noise must be between 0 and 1")

    with pytest.raises(typer.Exit) as stopped:
        command()
    assert stopped.value.exit_code == 2
    assert capsys.readouterr().err == "error: noise must be between 0 and 1\n"


def test_a_command_says_itself_how_to_go_on_after_ctrl_c(capsys):
    def command():
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit):
        plain_errors(command, interrupted="type it again")()
    assert capsys.readouterr().err == "interrupted; type it again\n"
