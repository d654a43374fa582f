"""The study of the diagnosis: its noise, its halves, one cell from data to row, and groups together."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("cleanlab")

from research.diagnosis import page
from research.diagnosis.measure import summary
from research.diagnosis.study import CLASSES, LEVELS, NUMBERS, Cell, cells, disturbed, of_cell
from research.diagnosis.tasks import SOURCES, load


@pytest.mark.parametrize("kind", [*NUMBERS, *CLASSES])
def test_the_kinds_of_noise(kind):
    rng = np.random.default_rng(0)
    classes = 0 if kind in NUMBERS else 4
    clean = rng.normal(size=4000) if kind in NUMBERS else rng.integers(4, size=4000).astype(float)
    clean[:100] = np.nan
    labels, rate = disturbed(kind, clean, 0.3, classes, rng)
    known = np.isfinite(clean)
    changed = (labels != clean)[known].mean()
    assert np.isnan(labels[~known]).all()
    if kind in NUMBERS:
        assert rate == pytest.approx(changed, abs=0.01) == pytest.approx(0.3, abs=0.03)
    else:
        assert rate == pytest.approx(changed * 4 / 3)
        assert rate == pytest.approx({"symmetric": 0.3, "pair": 0.4, "one class": 0.1}[kind], abs=0.03)
    if kind == "exchanged":
        assert np.sort(labels[known]) == pytest.approx(np.sort(clean[known]))


def test_nothing_is_in_both_parts():
    assert not set(LEVELS["choose"]) & set(LEVELS["report"])
    targets = {"choose": set(), "report": set()}
    for name, (half, *_, rows) in SOURCES.items():
        columns = getattr(rows, "args", (None,))[-1]
        if isinstance(columns, slice):
            targets[half] |= {(name.split(",")[0].split()[0], column) for column in range(columns.start, columns.stop)}
    assert min(map(len, targets.values())) > 10
    assert not targets["choose"] & targets["report"]


@pytest.mark.parametrize("data", ["wine", "step"])
def test_a_cell_is_recorded_and_measured(tmp_path, data):
    cell = Cell(data, "linear", "symmetric" if data == "wine" else "exchanged", 0.4, 0)
    task, (held,) = of_cell(cell, Path(), tmp_path)
    assert held.rate == pytest.approx(0.4, abs=0.15)
    assert len(held.predictions) == len(held.labels) == len(task.y)
    before = (tmp_path / f"{cell.name}.npz").stat().st_mtime_ns
    frame = summary(iter([cell]), Path(), tmp_path)
    assert (tmp_path / f"{cell.name}.npz").stat().st_mtime_ns == before
    assert frame["samples"].tolist() == ["all", "300", "75"]
    assert (frame["tasks"] == 1).all()
    assert 0 < frame["precision"][0] <= 1
    assert 0 < frame["cleanlab"][0] <= 1


def test_the_same_seed_draws_the_same_data():
    one, again, other = (load("checker", seed, Path()).y for seed in (0, 0, 1))
    assert (one == again).all()
    assert not (one == other).all()


def test_groups_together_count_every_task():
    rows = {row[0]: row[1].split("/") for row in page.by_group().texts}
    alone, together = (
        [own for name, own in rows.items() if name.startswith("all ") == joined] for joined in (False, True)
    )
    assert [sum(int(own[place]) for own in alone) for place in (0, 1)] == [
        sum(int(own[place]) for own in together) for place in (0, 1)
    ]


def test_the_parts_are_drawn_by_other_seeds():
    drawn = {half: {cell.seed for cell in cells(half)} for half in LEVELS}
    assert not drawn["choose"] & drawn["report"]
