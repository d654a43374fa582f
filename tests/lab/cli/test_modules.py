"""A command imports what it needs: so many modules of the laboratory and no more."""

import os
import subprocess
import sys

import pytest

from excessmtl import lab

COUNT = """
import contextlib, sys
from excessmtl.lab.cli.app import app

with contextlib.suppress(SystemExit):
    app(sys.argv[1:])
print(len([name for name in sys.modules if name.startswith("excessmtl.lab.")]), file=sys.stderr)
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def modules(*words):
    command = [sys.executable, "-c", COUNT, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    return int(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("command", ["train --help", "sweep --help", "methods uniform", "data list"])
def test_help_and_lists_need_thirty_modules_at_most(command):
    assert modules(*command.split()) <= 30


@pytest.mark.slow
def test_a_run_does_not_import_sweeps_and_a_report_does_not_train(tmp_path):
    small = {"epochs": 1, "limit_batches": 1, "device": "cpu"}
    words = [word for name, value in small.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert modules("train", "teacher-narrow", *words, "--out", tmp_path / "one") <= 60
    lab.train("teacher-narrow", out=tmp_path / "runs" / "one", **small)
    assert modules("report", tmp_path / "runs", "-o", tmp_path / "report.html") <= 60
