"""Recorded steps: bit for bit what the steps themselves do. Needs a CUDA device, but for what every device can show."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import yaml

from commands import done
from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.training.loop import Run
from excessmtl.lab.training.progress import Watcher
from excessmtl.lab.training.replay import ReplayedEpochs

METHODS = ["excess", "uniform", "gradnorm", "mgda", "imtl", "dwa", "nash", "single"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")
@pytest.mark.parametrize("method", METHODS)
def test_replayed_runs_equal_stepwise_runs(method, tmp_path):
    histories = []
    for replay in (False, True):
        config = RunConfig("multimnist", method, noise=0.4, epochs=2, limit_batches=12, device="cuda", replay=replay)
        run = Run(config, tmp_path / f"{replay}")
        assert (run.replay is not None) == replay
        run.execute()
        histories.append(run)
    for name in ("losses", "weights"):
        first, second = (np.concatenate(run.history[name]) for run in histories)
        np.testing.assert_array_equal(first, second)
    for one, two in zip(*(run.learner.network.state_dict().values() for run in histories), strict=True):
        assert torch.equal(one, two)


class _StopsAfterAnEpoch(Watcher):
    def on_epoch(self, epoch, row):
        raise KeyboardInterrupt


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")
def test_a_replayed_run_resumes_where_it_stopped(tmp_path):
    config = RunConfig("multimnist", "excess", epochs=3, limit_batches=8, device="cuda")
    whole = Run(config, tmp_path / "whole").execute()
    with pytest.raises(KeyboardInterrupt):
        Run(config, tmp_path / "parts", watcher=_StopsAfterAnEpoch()).execute()
    assert Run(config, tmp_path / "parts", resume=True).execute()["scores"] == whole["scores"]


class _Stub:
    """Stands in for streams and graphs where there is no CUDA; recording fails as soon as it begins."""

    def __init__(self, *args, **options):
        pass

    def capture_begin(self, **options):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    def wait_stream(self, other):
        pass


def test_a_step_that_cannot_be_recorded_is_taken_as_it_is(tmp_path, monkeypatch):
    config = RunConfig("simulated-arm", "excess", epochs=2, limit_batches=6, device="cpu")
    expected = Run(config, tmp_path / "plain").execute()
    for name in ("Stream", "CUDAGraph", "graph_pool_handle", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, _Stub)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    run = Run(config, tmp_path / "unrecorded")
    run.replay = ReplayedEpochs(run.plain_step, run.data.train, run.learner.balancer)
    with pytest.warns(UserWarning, match="recording one failed .operation not permitted"):
        summary = run.execute()
    assert summary["scores"] == expected["scores"]
    assert run.learner.balancer.steps == 12


@pytest.mark.parametrize("method", ["uniform", "excess", "imtl", "gradnorm"])
def test_every_method_trains_at_the_same_total_weight(method, tmp_path):
    run = Run(RunConfig("simulated-arm", method, epochs=1, limit_batches=3, device="cpu"), tmp_path / "run")
    assert run.learner.balancer.factor * run.learner.balancer.rule.prior(7).sum().item() == pytest.approx(7)
    summary = run.execute()
    logged = np.load(tmp_path / "run" / "steps.npz")["weights"]
    np.testing.assert_allclose(logged.sum(1), 7 if method == "gradnorm" else 1, rtol=1e-5)
    assert sum(summary["weights"].values()) == pytest.approx(1)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["label"] == method


def test_floors_are_an_option_of_a_run(tmp_path):
    arguments = ["train", "simulated-arm", "--method", "uniform", "--epochs", "1", "--limit-batches", "3"]
    arguments += ["--option", "protect={joint_1: 0.7}", "--device", "cpu", "--out", str(tmp_path / "run")]
    done(*arguments)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["weights"] == pytest.approx(
        {f"joint_{number}": 0.7 if number == 1 else 0.05 for number in range(1, 8)}
    )
    logged = np.load(tmp_path / "run" / "steps.npz")["weights"]
    np.testing.assert_allclose(logged, np.tile([0.7, *[0.05] * 6], (3, 1)), rtol=1e-5)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["method_options"]["protect"] == {"joint_1": 0.7}
    done(*arguments, "--resume")
