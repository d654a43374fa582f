"""`make demo` tells what came out, whichever way it came out."""

from pathlib import Path

import pandas as pd
import pytest

from excessmtl.lab import demo
from excessmtl.lab.demo import CLEAN, NOISY, OURS, PLAIN

STUDY = """
benchmarks:
  - {benchmark: multimnist, benchmark_options: {bundled: true}, epochs: 1, batch_size: 128, limit_batches: 3}
methods:
  - {method: uniform, label: equal weights}
  - {method: excess, loss: robust, label: "excess, robust losses"}
noise: [0.6]
settings: {device: cpu, exclude_true: true}
"""


@pytest.mark.parametrize(
    ("ours", "plain", "words"),
    [
        ([91.0, 92.0], [90.0, 90.0], "1.5 points better on the clean digit"),
        ([88.0, 89.0], [90.0, 90.0], "1.5 points worse on the clean digit"),
        ([89.0, 92.0], [90.0, 90.0], "neither better nor worse for sure (+0.5 points, seeds disagree)"),
    ],
)
def test_the_closing_words_follow_the_numbers(ours, plain, words):
    runs = pd.MultiIndex.from_product([[PLAIN, OURS], [0, 1]], names=["label", "seed"])
    told = demo.closing(pd.DataFrame({CLEAN: [*plain, *ours], NOISY: 1.0}, index=runs))
    assert words in told
    assert len(told.splitlines()) <= 4


@pytest.mark.filterwarnings("ignore:.*lr_scheduler")
def test_the_whole_story(tmp_path):
    study = tmp_path / "demo.yaml"
    study.write_text(STUDY)
    told = demo.tell(tmp_path / "runs", str(study))
    page = (tmp_path / "runs" / "report.html").read_text()
    assert '<a href="#noise">' in page
    assert '<a href="#regret">' not in page
    for words in (PLAIN, OURS, "top_left: ", "bottom_right: ", "Against plain training"):
        assert words in told
    table = told.splitlines()[:3]
    assert table[1].startswith(PLAIN)  # in the order of the study
    before = {path: path.stat().st_mtime_ns for path in Path(tmp_path / "runs").rglob("metrics.csv")}
    demo.tell(tmp_path / "runs", str(study))
    assert before == {path: path.stat().st_mtime_ns for path in Path(tmp_path / "runs").rglob("metrics.csv")}
