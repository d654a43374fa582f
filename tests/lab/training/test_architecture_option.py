"""`--architecture`: every one trains on vectors and images, and its network comes back from the run folder."""

import pytest
import torch

from commands import done
from excessmtl import lab
from excessmtl.lab.data import registry
from excessmtl.lab.runs.config import ARCHITECTURES, RunConfig
from excessmtl.lab.training.model import make_network


@pytest.mark.parametrize("benchmark", ["simulated-arm", "digit-domains"])
def test_every_architecture_of_a_benchmark(benchmark):
    """Vectors through a sequence of layers; images of each task's own through a trunk that is one stage."""
    made = registry()[benchmark].load(0)
    shared = made.train.inputs
    inputs = made.prepare((next(iter(shared.values())) if isinstance(shared, dict) else shared)[:3])
    for name in ARCHITECTURES[1:]:
        network = make_network(RunConfig(benchmark, "excess", architecture=name), made)
        outputs = network(inputs)
        assert set(outputs) == {task.name for task in made.tasks}
        assert all(len(output) == 3 for output in outputs.values())
        assert network.private_parameters()


def test_a_run(tmp_path):
    arguments = ["train", "simulated-arm", "--architecture", "mmoe", "--epochs", "1", "--limit-batches", "2"]
    done(*arguments, "--device", "cpu", "--out", tmp_path / "run")
    network = lab.load(tmp_path / "run")
    assert type(network).__name__ == "MMoE"
    assert all(output.isfinite().all() for output in network(torch.randn(2, 21)).values())
    assert RunConfig("simulated-arm", "excess", architecture="mmoe").name == "excess mmoe"


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="'single' shares nothing"):
        RunConfig("simulated-arm", "single", architecture="mmoe")
    with pytest.raises(ValueError, match="architecture must be one of"):
        RunConfig("simulated-arm", "excess", architecture="tree")
