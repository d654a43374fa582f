"""A run folder from a loop of one's own: whole after every epoch, and a report can be made of it."""

import json

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import excessmtl
from excessmtl import lab
from excessmtl.lab.compare.collect import read_epochs, read_steps

TASKS = ["price", "churn"]


def steps(balancer, count=5, missing=False):
    """Takes steps, and yields after each."""
    heads = nn.ModuleList(nn.Linear(8, 1) for _ in TASKS)
    for _ in range(count):
        z = balancer.trunk(torch.randn(16, 4))
        losses = {task: head(z).square().mean() for task, head in zip(TASKS, heads, strict=True)}
        yield balancer.backward({**losses, "churn": None} if missing else losses)


def make(method="excess"):
    trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    balancer = excessmtl.create(method, tasks=TASKS, shared=trunk)
    object.__setattr__(balancer, "trunk", trunk)
    return balancer


SCORES = {"price": 0.8, "churn": 0.6}
ACCURACY = {"metric": "accuracy", "unit": "share", "higher_is_better": True}


def record(folder, method="excess", epochs=2, close=True, **options):
    balancer = make(method)
    recorder = excessmtl.Recorder(folder, balancer, **{**ACCURACY, **options})
    for _ in range(epochs):
        for _ in steps(balancer):
            recorder.step()
        recorder.epoch(SCORES)
    if close:
        recorder.close()
    return recorder


def test_a_report_is_made_of_recorded_runs(tmp_path):
    for method in ("excess", "uniform"):
        record(tmp_path / "mine" / method, method, noisy_tasks=["churn"], noise=0.4)
    frame = lab.collect(tmp_path)
    assert set(frame.label) == {"excess", "uniform"}
    assert set(frame.benchmark) == {"mine"}
    assert frame.overall_score.tolist() == pytest.approx([0.7, 0.7])
    assert frame.clean_score.tolist() == [0.8, 0.8]
    assert "churn" in lab.report(tmp_path, tmp_path / "report.html").read_text()
    run = tmp_path / "mine/excess"
    assert read_steps(run / "steps.npz").weights.shape == (10, 2)
    epochs = read_epochs(run / "metrics.csv")
    assert epochs["test/price/accuracy"].tolist() == [0.8, 0.8]
    assert np.isclose(epochs["train/price/weight"] + epochs["train/churn/weight"], 1).all()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["completed"]
    assert sum(summary["weights"].values()) == pytest.approx(1)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["options"]["trust"] == make().rule.trust
    assert "torch" in config["versions"]


def test_there_is_no_network_in_a_recorded_run(tmp_path):
    record(tmp_path / "run")
    with pytest.raises(ValueError, match="a Recorder wrote it"):
        lab.load(tmp_path / "run")


def test_what_was_never_closed_has_lost_one_epoch_and_the_next_goes_on(tmp_path):
    folder = tmp_path / "run"
    recorder = record(folder, close=False)
    list(steps(recorder.balancer))
    recorder.step()
    del recorder  # as with a process that is killed, its hold on the folder ends
    (row,) = lab.collect(folder).to_dict("records")
    assert row["epochs"] == 2
    assert not json.loads((folder / "summary.json").read_text())["completed"]
    record(folder, epochs=1, resume=True)
    (row,) = lab.collect(folder).to_dict("records")
    assert row["epochs"] == 3
    assert len(read_steps(folder / "steps.npz").losses) == 15


def test_losses_stand_in_for_scores_and_a_task_may_be_missing(tmp_path):
    balancer = make("dwa")
    with excessmtl.Recorder(tmp_path / "run", balancer) as recorder:
        for step in steps(balancer, missing=True):
            recorder.step(step)
        recorder.epoch()
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["scores"]["churn"] is None
    assert summary["scores"]["price"] > 0
    assert summary["completed"]


def test_mistakes_are_said_and_nothing_is_written(tmp_path):
    balancer = make()
    with pytest.raises(ValueError, match="noisy_tasks names unknown task 'x'"):
        excessmtl.Recorder(tmp_path / "run", balancer, noisy_tasks=["x"])
    with pytest.raises(ValueError, match="metric must name the tasks"):
        excessmtl.Recorder(tmp_path / "run", balancer, metric={"price": "nmse"})
    assert not (tmp_path / "run").exists()
    recorder = excessmtl.Recorder(tmp_path / "run", balancer, **ACCURACY)
    with pytest.raises(ValueError, match="has taken no step"):
        recorder.step()
    with pytest.raises(ValueError, match="no step was noted"):
        recorder.epoch(SCORES)
    list(steps(balancer))
    recorder.step()
    with pytest.raises(ValueError, match="needs the scores"):
        recorder.epoch()
    with pytest.raises(ValueError, match="scores must name the tasks"):
        recorder.epoch({"price": 1.0})
    with pytest.raises(ValueError, match="already holds a run"):
        excessmtl.Recorder(tmp_path / "run", balancer, **ACCURACY)
    with pytest.raises(ValueError, match="another process is recording"):
        excessmtl.Recorder(tmp_path / "run", balancer, **ACCURACY, resume=True)
    recorder.close()
    with pytest.raises(ValueError, match="seed is 1, but the run"):
        excessmtl.Recorder(tmp_path / "run", balancer, **ACCURACY, seed=1, resume=True)
    balancer.add_task("new")
    with pytest.raises(ValueError, match="the tasks are"):
        recorder.step(excessmtl.Step(("price",), torch.zeros(4, 1)))


DAMAGED = {"cut": b"{unclosed,\n1,2", "deep": b"[" * 100_000, "words": b"a,b\nx,y\n"}


@pytest.mark.parametrize("file", ["config.yaml", "metrics.csv", "steps.npz"])
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_run_is_one_sentence_that_names_it(tmp_path, file, content):
    record(tmp_path / "run", epochs=1)
    whole = (tmp_path / "run" / file).read_bytes()
    (tmp_path / "run" / file).write_bytes(content)
    with pytest.raises(ValueError, match=r"^(the run in .*run is damaged|benchmark is .* the run in .*run was)"):
        record(tmp_path / "run", epochs=1, resume=True)
    assert (tmp_path / "run" / file).read_bytes() == content
    (tmp_path / "run" / file).write_bytes(whole)
    record(tmp_path / "run", epochs=1, resume=True)
