"""What the multipliers of all tasks sum to, and that equal ones are `sum(losses).backward()`."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from choices import UNIFORM, Method, rule_of
from excessmtl.step.multipliers import factor
from excessmtl.step.run import multipliers
from models import mlp

OWN_TOTAL = ["static", "imtl_l", "imtl_hybrid", "uw", "dtp", "pcgrad", "cagrad", "graddrop", "nash"]
OWN_TOTAL += ["igb", "log_loss", "gls", "stch", "cosmos", "pbi", "fairgrad", "upgrad", "dualproj", "aligned_mtl"]
OWN_TOTAL += ["config", "gradvac", "pcd", "auto_lambda", "db_mtl", "ldc_mtl", "forum"]
"""The methods whose total is part of the method, as the guide lists them."""


def test_the_methods_with_a_total_of_their_own_are_those_in_the_guide():
    assert [name for name in excessmtl.list_methods() if rule_of(Method(name)).total(3) is None] == OWN_TOTAL


def test_equal_shares_are_multiplied_by_exactly_one_however_many_there_are():
    for tasks in range(1, 1000):
        assert (multipliers(torch.full((tasks,), 1 / tasks), factor("sum", 1.0, tasks), None) == 1).all(), tasks


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf"), True, "total", None])
def test_what_is_no_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale must be 'sum', 'mean' or a positive number, found"):
        UNIFORM.create(mlp().trunk, scale=scale)


# ------------------------------------------------------------------ the sum of the losses

HEADS = {
    "linear": lambda: nn.Linear(32, 1),
    "deep": lambda: nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)),
}


def network(tasks, head):
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh())
    return nn.ModuleDict({"trunk": trunk, "heads": nn.ModuleList(HEADS[head]() for _ in range(tasks))})


def five_steps(model, backward):
    """SGD on losses that are computed in task order."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        x, targets = torch.randn(64, 10, generator=generator), torch.randn(64, len(model["heads"]), generator=generator)
        z = model["trunk"](x)
        losses = {f"task{place}": mse_loss(head(z), targets[:, [place]]) for place, head in enumerate(model["heads"])}
        optimiser.zero_grad()
        backward(losses)
        optimiser.step()
    return dict(model.named_parameters())


@pytest.mark.parametrize("form", ["backward", "scalar"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("tasks", [3, 41])
@pytest.mark.parametrize(
    ("engine", "shared"), [("reference", "module"), ("fast", "parameters"), ("fast", "module")], ids=str
)
def test_uniform_is_the_sum_of_the_losses_to_the_bit(tasks, head, form, engine, shared):
    """To rounding where heads are one product of matrices and autograd adds one per task, in another order."""
    plain = network(tasks, head)
    ours = copy.deepcopy(plain)
    trunk = ours["trunk"] if shared == "module" else list(ours["trunk"].parameters())
    balancer = excessmtl.create("uniform", tasks=[f"task{i}" for i in range(tasks)], shared=trunk, engine=engine)
    backward = balancer.backward if form == "backward" else lambda losses: balancer(losses).backward()
    expected = five_steps(plain, lambda losses: sum(losses.values()).backward())
    close = {"rtol": 1e-5, "atol": 1e-6} if (engine, shared) == ("fast", "module") else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(five_steps(ours, backward), expected, **close)
