"""`import excessmtl` brings in torch and numpy, and of other packages only what these bring in themselves.

The command line brings in little more."""

import json
import os
import subprocess
import sys

SCRIPT = (
    "import json, sys, torch, numpy{more}; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
)


def modules(more=""):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT.format(more=more)]
    return set(json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout))


def test_only_torch_and_numpy():
    added = modules(", excessmtl") - modules() - set(sys.stdlib_module_names)
    assert added == {"excessmtl"}


def test_the_command_line_starts_without_what_only_training_needs():
    slow = {"lightning", "torchmetrics", "transformers", "scipy", "matplotlib", "plotly"}
    assert not slow & modules(", excessmtl.cli.app")


def test_every_public_name_is_there():
    import excessmtl

    for name in excessmtl.__all__:
        assert getattr(excessmtl, name) is not None
    assert {"excess", "uniform"} <= set(excessmtl.list_methods())
