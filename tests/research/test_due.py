"""Studies whose published runs are missing or of other code."""

import re

import pytest

from excessmtl.lab.studies.study import read_study
from research import due


def test_a_run_that_is_missing_or_of_other_code_makes_a_study_out_of_date(tmp_path):
    study = tmp_path / "one.yaml"
    study.write_text("benchmarks: [multimnist]\nmethods: [uniform, mgda]\nnoise: [0.4]\nseeds: 2")
    codes = {(run.benchmark, run.name, 0.4, run.seed, "uniform", None): "now" for run in read_study(study).runs}
    assert due.out_of_date(study, codes, "now") == ""
    codes["multimnist", "mgda", 0.4, 1, "uniform", None] = "before"
    del codes["multimnist", "uniform", 0.4, 0, "uniform", None]
    assert due.out_of_date(study, codes, "now") == "2 of 4 runs: 1 before, 1 missing"


@pytest.mark.parametrize("study", due.STUDIED, ids=lambda path: path.stem)
def test_every_run_that_a_study_plans_is_published(study):
    said = due.out_of_date(study, due.published(study), "")
    page = due.results.PAGE.path.read_text(encoding="utf-8")
    assert all(
        f"{count} of its runs of {study.stem} are missing" in page for count in re.findall(r"(\d+) missing", said)
    )
