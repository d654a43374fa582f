"""`make demo` is the study `demo`, a diagnosis of one of its runs, and a report."""

import re
from fnmatch import fnmatch
from pathlib import Path

from excessmtl.lab.runs.folder import folder_of
from excessmtl.lab.studies.study import read_study


def test_the_run_that_is_diagnosed_is_one_of_the_study():
    recipe = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"ls -dt runs/demo/(\S+)", recipe)
    folders = [folder_of(run).as_posix() for run in read_study(Path("demo")).runs]
    assert [fnmatch(folder, pattern) for folder in folders].count(True) == 1
