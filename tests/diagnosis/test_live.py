"""`balancer.diagnose()`: what training itself shows."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl

TASKS = ["clean", "random"]


def trained(method, steps):
    torch.manual_seed(0)
    trunk, heads = nn.Linear(4, 16), nn.ModuleDict({task: nn.Linear(16, 1) for task in TASKS})
    balancer = excessmtl.create(method, tasks=TASKS, shared=trunk)
    optimiser = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=0.02)
    for _ in range(steps):
        x = torch.randn(32, 4)
        targets = {"clean": x.sum(1, keepdim=True), "random": torch.randn(32, 1)}
        z = trunk(x)
        optimiser.zero_grad()
        balancer.backward({task: mse_loss(heads[task](z), targets[task]) for task in TASKS})
        optimiser.step()
    return balancer


def test_a_task_that_stays_behind_is_suspect():
    balancer = trained("excess", 400)
    before = {name: value.clone() for name, value in balancer.state.items()}
    report = balancer.diagnose()
    assert [task.verdict for task in report.tasks] == ["clean", "suspect"]
    assert report["random"].loss == pytest.approx(1, abs=0.2)
    assert report["random"].excess_risk == pytest.approx(0, abs=0.1)
    assert all(task.noise_rate is None for task in report.tasks)
    assert str(report).splitlines()[-1].startswith("random: ")
    assert all(torch.equal(before[name], value) for name, value in balancer.state.items())
    with pytest.raises(ValueError, match="no predictions of task 'random'"):
        report.suspects("random")


@pytest.mark.parametrize("steps", [0, 3])
def test_at_the_beginning_nothing_has_been_learned(steps):
    found = [(task.verdict, task.reason) for task in trained("excess", steps).diagnose().tasks]
    assert found == [("not learned yet", f"only {steps} steps so far")] * 2


def test_other_methods_say_that_they_keep_no_record():
    report = trained("uniform", 2).diagnose()
    assert {task.verdict for task in report.tasks} == {"too little evidence"}
    assert "'uniform' keeps no record" in report["clean"].reason


def test_a_loss_module_that_estimates_noise_is_heard():
    class Robust(nn.MSELoss):
        noise = torch.tensor(0.4)

    report = trained("uniform", 2).diagnose(losses={"random": Robust(), "clean": nn.MSELoss()})
    assert report["random"].noise_rate == pytest.approx(0.4)
    assert [task.verdict for task in report.tasks] == ["too little evidence", "suspect"]
    early = trained("excess", 2).diagnose(losses={"random": Robust()})  # too early for an estimate
    assert early["random"].verdict == "not learned yet"
    with pytest.raises(ValueError, match="losses names unknown task 'b'"):
        trained("uniform", 0).diagnose(losses={"b": Robust()})
