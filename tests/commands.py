"""`excessmtl` as tests call it: in this process, or in one of its own."""

import os
import subprocess
import sys

from typer.testing import CliRunner

from excessmtl.lab.cli.app import app

# One thread, as in the tests' own process: two of them at a time on two cores, and threads would wait for each other.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def excessmtl(*words):
    """The result of a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words):
    """What a command printed, which has ended well."""
    result = excessmtl(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refused(result, *words):
    """Exit code 2 and one line, an error with all of these words in it."""
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert all(str(word) in line for word in words), line


def in_a_process(*words):
    """The same command with an interpreter of its own; its end."""
    command = [sys.executable, "-m", "excessmtl", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=ENVIRONMENT)
