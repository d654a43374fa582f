"""What the explorer keeps of the runs, and that many of them fit into a page."""

import numpy as np
import pytest

from excessmtl.lab.compare.settings import settings
from excessmtl.lab.reports import curves as explorer
from excessmtl.lab.reports.curves import explorable
from report_data import made_up, table


def write_steps(folder, tasks, steps=5, **changes):
    folder.mkdir(parents=True)
    column = np.arange(len(tasks), dtype=np.float32)
    values = {name: np.tile(column, (steps, 1)) for name in explorer.QUANTITIES} | changes
    np.savez(folder / "steps.npz", tasks=np.array(tasks), **values)


def explored(tmp_path, *runs):
    return explorable(tmp_path, settings(table(*runs)))


def test_tasks_come_in_the_order_of_the_page_whatever_the_file_says(tmp_path):
    write_steps(tmp_path / "run", ["b", "a"])
    (run,) = explored(tmp_path, made_up(folder="run"))
    assert run["curves"]["losses"] == [[1.0] * 5, [0.0] * 5]
    assert (run["label"], run["noise"], run["seed"], run["steps"], run["points"]) == ("excess", 0.8, 0, 5, 5)


def test_a_point_is_the_mean_of_its_steps_without_those_that_are_not_finite(tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "MOST_POINTS", 2)
    monkeypatch.setattr(explorer, "FEWEST_POINTS", 2)
    column = np.array([1.0, np.nan, 3.0, np.inf, 5.0, 7.0])
    write_steps(tmp_path / "run", ["a", "b"], 6, losses=np.stack([column, np.full(6, np.nan)], 1))
    (run,) = explored(tmp_path, made_up(folder="run"))
    assert run["curves"]["losses"] == [[2.0, 6.0], [None, None]]
    assert (run["steps"], run["points"]) == (6, 2)


def test_a_quantity_that_a_method_does_not_have_is_none(tmp_path):
    write_steps(tmp_path / "run", ["a", "b"], excess_risks=np.full((5, 2), np.nan))
    (run,) = explored(tmp_path, made_up(folder="run"))
    assert run["curves"]["excess_risks"] is None
    assert run["curves"]["weights"] is not None


def test_scores_per_epoch_are_those_of_metrics_csv(tmp_path):
    write_steps(tmp_path / "run", ["a", "b"])
    (tmp_path / "run" / "metrics.csv").write_text("epoch,test/a/accuracy,test/b/accuracy\n0,0.5,nan\n1,0.75,0.25\n")
    (run,) = explored(tmp_path, made_up(folder="run"))
    assert run["epochs"] == [1, 2]
    assert run["scores"] == [[50.0, 75.0], [None, 25.0]]


def test_runs_without_their_steps_are_left_out(tmp_path):
    write_steps(tmp_path / "run", ["a", "b"])
    assert len(explored(tmp_path, made_up(folder="run"), made_up(seed=1, folder="gone"))) == 1


def test_many_runs_share_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "PAGE_BUDGET", 1200)
    places = [f"run-{seed}" for seed in range(4)]
    for place in places:
        write_steps(tmp_path / place, ["a", "b"], steps=1000)
    found = explored(tmp_path, *(made_up(seed=seed, folder=place) for seed, place in enumerate(places)))
    # 1200 numbers / 4 runs / 6 curves.
    assert all(len(curve) == 50 for run in found for curve in run["curves"]["losses"])


def test_steps_of_other_tasks_are_refused(tmp_path):
    write_steps(tmp_path / "run", ["a", "c"])
    with pytest.raises(ValueError, match=r"run/steps\.npz has no task 'b'"):
        explored(tmp_path, made_up(folder="run"))
