"""A command imports what it needs: so many modules of the laboratory and no more."""

import json
import subprocess
import sys

import pytest

from commands import ENVIRONMENT

COUNT = """
import contextlib, sys
from excessmtl.lab.cli.app import app

with contextlib.suppress(SystemExit):
    app(sys.argv[1:])
print(len([name for name in sys.modules if name.startswith("excessmtl.lab.")]), file=sys.stderr)
"""


def modules(*words):
    command = [sys.executable, "-c", COUNT, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    return int(done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("command", "most"),
    [("--help", 20), ("train --help", 14), ("sweep --help", 4), ("methods uniform", 4), ("reproduce --list", 26)],
)
def test_help_and_lists_import_the_module_of_their_command(command, most):
    assert modules(*command.split()) <= most


@pytest.mark.slow
def test_a_run_imports_no_sweep_a_sweep_no_training_loop_and_a_report_neither(tmp_path):
    """At most 30 for every command; `reproduce all` is a sweep, three modules more than it draws with, and figures."""
    small = {"epochs": 1, "limit_batches": 1, "device": "cpu"}
    words = [word for name, value in small.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert modules("train", "simulated-arm", *words, "--out", tmp_path / "runs" / "one") <= 30
    assert modules("report", tmp_path / "runs", "-o", tmp_path / "report.html") <= 30
    assert modules("diagnose", tmp_path / "runs" / "one") <= 28
    study = {"benchmarks": ["simulated-arm"], "methods": ["uniform"], "settings": small}
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    assert modules("sweep", tmp_path / "study.yaml", "--out", tmp_path / "sweep") <= 28
    assert modules("reproduce", "conceptual", "--out", tmp_path / "figures") <= 30
    assert modules("reproduce", "clean-validation", "--out", tmp_path / "figures") <= 30
    assert modules("reproduce", "all", "--runs", tmp_path / "figures" / "runs", "--out", tmp_path / "drawn") <= 28
    assert modules("bench", "--quick", "--networks", "mlp-7", "--methods", "excess") <= 17
