"""The study of the diagnosis: its noise, its measures, and that the page says what the file has."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from excessmtl.lab.data.kinds import classification, regression
from excessmtl.lab.data.tasks import Task
from research.diagnosis import page
from research.diagnosis.cells import Cell, World, read, record
from research.diagnosis.measure import (
    average_precision,
    confident_quarter,
    hard_summary,
    measured,
    samples_summary,
    separation,
)
from research.diagnosis.noises import disturbed
from research.diagnosis.study import REPORTED, cells

TASK = Task("a", 5, classification)


def test_the_kinds_of_noise():
    generator = torch.Generator().manual_seed(0)
    inputs, target = torch.randn(4000, 6, generator=generator), torch.randint(5, (4000,), generator=generator)
    pair = disturbed("pair", TASK, inputs, target, 0.3, 1, 0)
    assert (pair != target).float().mean() == pytest.approx(0.3, abs=0.01)
    assert torch.equal(pair[pair != target], (target[pair != target] + 1) % 5)
    symmetric = disturbed("symmetric", TASK, inputs, target, 0.3, 1, 0)
    assert (symmetric != target).float().mean() == pytest.approx(0.3 * 4 / 5, abs=0.03)
    one, other = (disturbed("instance", TASK, inputs, target, 0.3, 1, place) for place in (0, 1))
    hit = (one != target) & (other != target)
    assert (one != target).float().mean() == pytest.approx(0.3, abs=0.03)
    assert torch.equal(one[hit], other[hit])  # the input chooses the wrong class, chance whether it is taken
    with pytest.raises(ValueError, match="for classes only"):
        disturbed("pair", Task("a", 1, regression), inputs, inputs[:, :1], 0.3, 1, 0)


def test_measures():
    assert average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, True])) == pytest.approx((1 + 2 / 3) / 2)
    logits = np.array([[9.0, 0], [8.0, 0], [0.2, 0], [0.1, 0], [0, 7.0], [0, 0.1], [0, 0.1], [0, 0.1]])
    assert confident_quarter(logits, np.array([0, 1, 0, 0, 1, 0, 0, 0])) == pytest.approx(1)
    frame = pd.DataFrame({"truth": [0.2, 1.0, 0.0, 0.0], "estimate": [0.1, np.nan, 0.0, 0.1]})
    assert separation(frame) == pytest.approx(3.5 / 4)


def test_the_published_file_has_no_false_alarm_and_missed_goals_come_first():
    frame = pd.read_csv(page.TASKS)
    assert not (frame[frame["truth"] == 0]["verdict"] == "noisy").any()
    met = [row[-1] == "yes" for row in page.goals().texts]
    assert met == sorted(met)
    assert not met[0]
    assert met[-1]


def test_summaries_of_tasks():
    columns = {"verdict": ["noisy", "suspect", "clean", "too little evidence"], "estimate": [0.2, 0.1, 0.0, np.nan]}
    frame = pd.DataFrame(
        {"world": "w", "truth": [0.2, 0.0, 0.0, 0.2], "low": 0.0, "high": [0.3, 0.1, 0.1, 0.1], **columns}
    )
    (hard,) = hard_summary(frame).to_dict("records")
    assert hard == {"world": "w", "tasks": 4, "mean_estimate": pytest.approx(0.1), "largest": 0.2} | dict.fromkeys(
        ("noisy", "suspect", "other"), 1
    )
    (own,) = samples_summary({"100": frame}).to_dict("records")
    assert own["covered"] == 0.75
    assert own["called_noisy"] == 0.5


def test_worlds_need_their_data():
    named = {cell.world.name for cell in cells(REPORTED, [0], {"pacs": Path("p")})}
    assert "pacs" in named
    assert not named & {"sarcos", "multimnist-60k"}


def test_a_cell_is_recorded_and_measured(tmp_path):
    world = World("tiny", "teacher-memorise", 1, levels=(0.5,))
    (cell,) = cells([world], [0], {})
    assert cell == Cell(world, "symmetric", 0.5, 0)
    before = record(cell, tmp_path).stat().st_mtime_ns
    assert record(cell, tmp_path).stat().st_mtime_ns == before
    found = read(cell, tmp_path)
    assert [task.noisy for task in found] == [True, False, False]
    assert (found[0].targets != found[0].clean).mean() == pytest.approx(0.5 * 0.8, abs=0.1)
    frame = measured([cell], tmp_path, 300)
    assert frame["samples"].tolist() == [300] * 3
    assert frame["truth"].iloc[1:].tolist() == [0, 0]
