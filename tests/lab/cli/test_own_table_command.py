"""A CSV file of the user's own: what the commands say about labels that nobody has vouched for."""

import re

import numpy as np
import pandas as pd
import pytest

from commands import done

STUDY = """
benchmarks: [{benchmark: own.csv, benchmark_options: {targets: [up, right]}}]
methods: [excess, uniform]
settings: {epochs: 1, device: cpu}
"""
QUICK = ["--epochs", "1", "--device", "cpu"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    numbers.assign(up=(numbers.a > 0).astype(int), right=(numbers.b > 0).astype(int)).to_csv("own.csv", index=False)
    return "own.csv"


def test_labels_are_as_given_unless_noise_was_added(table):
    plain = done("train", table, "--targets", "up,right", *QUICK)
    assert re.findall(r"(?:up|right) +│ ([\w ]+?) +│", plain) == ["as given", "as given"]
    assert "clean" not in plain
    noisy = done("train", table, "--targets", "up,right", *QUICK, "--noise", "0.4", "--noisy-tasks", "right")
    assert re.findall(r"(?:up|right) +│ ([\w ]+?) +│", noisy) == ["as given", "noise added"]


def test_no_table_of_a_sweep_or_a_report_calls_own_labels_clean(table, tmp_path):
    (tmp_path / "own.yaml").write_text(STUDY)
    shown = done("sweep", "own.yaml", "--out", "runs/own", "--jobs", "1")
    written = (tmp_path / "runs/own/scores.md").read_text()
    assert "overall" in written
    assert "clean" not in (shown + written).lower()
    done("report", "runs/own", "-o", "own.html")
    page = (tmp_path / "own.html").read_text()
    parts = re.findall(r'<article class="setting".*?</article>|<section id="regret".*?</section>', page, re.DOTALL)
    assert len(parts) == 2
    assert "overall" in parts[0]
    assert "clean" not in " ".join(parts).lower()
