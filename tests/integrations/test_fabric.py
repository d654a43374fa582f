"""Fabric in every precision of a CPU; several processes are in `tests/integration/test_processes.py`."""

import pytest
import torch
from integration_worlds import TASKS, Model
from lightning.fabric import Fabric
from torch.nn.functional import mse_loss

import excessmtl
from choices import each
from excessmtl.integrations.fabric import backward
from models import MultiTask


class Outputs(Model):
    """Without losses: Fabric's precision is that of the forward pass."""

    def forward(self, x):
        return MultiTask.forward(self, x)


def train(precision, way):
    fabric = Fabric(accelerator="cpu", precision=precision)
    model = Outputs()
    wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        x, y = torch.randn(8, 6, generator=generator), torch.randn(8, 2, generator=generator)
        optimizer.zero_grad()
        if way == "fabric":
            outputs = wrapped(x.to(fabric.strategy.precision.convert_input(x).dtype))
            losses = {task: mse_loss(outputs[task], y[:, [i]].to(outputs[task])) for i, task in enumerate(TASKS)}
            assert backward(fabric, balancer, losses) is balancer.last_step
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16-mixed"):
                outputs = model(x)
            losses = {task: mse_loss(outputs[task].float(), y[:, [i]]) for i, task in enumerate(TASKS)}
            balancer.backward(losses)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.filterwarnings("ignore:.*num_workers")
@each("precision", ["32-true", "bf16-mixed"])
def test_a_step_is_that_of_the_balancer(precision):
    assert torch.allclose(train(precision, "fabric"), train(precision, "by hand"), rtol=1e-5, atol=1e-7)


def test_pure_half_precision_trains():
    found = train("bf16-true", "fabric")
    assert found.isfinite().all()
    assert not torch.equal(found, torch.cat([parameter.flatten() for parameter in Outputs().parameters()]))


def test_in_evaluation_it_says_so():
    model = Outputs()
    balancer = excessmtl.create("excess", tasks=TASKS, shared=model.trunk).eval()
    outputs = model(torch.randn(8, 6))
    with pytest.raises(ValueError, match=r"balancer\.train"):
        backward(Fabric(accelerator="cpu"), balancer, {task: outputs[task].mean() for task in TASKS})
