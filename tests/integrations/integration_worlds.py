"""One small problem for every trainer, and what training by hand makes of it."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from models import MultiTask

TASKS = ["a", "b"]
BATCH, STEPS = 8, 6


class Model(MultiTask):
    """A trunk and two heads; called with targets, it returns losses too."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Sequential(nn.Linear(6, 16), nn.Tanh()), {task: nn.Linear(16, 1) for task in TASKS})

    def forward(self, x, y):
        outputs = super().forward(x)
        losses = {task: mse_loss(outputs[task], y[:, [i]]) for i, task in enumerate(TASKS)}
        return {"losses": losses, "logits": torch.cat([*outputs.values()], 1)}


def rows(steps=STEPS):
    """All examples of a run, in order."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(steps * BATCH, 6, generator=generator), torch.randn(steps * BATCH, 2, generator=generator)


def dataset(steps=STEPS):
    return [{"x": x, "y": y} for x, y in zip(*rows(steps), strict=True)]


def loader(steps=STEPS, size=BATCH, shuffle=False):
    return torch.utils.data.DataLoader(dataset(steps), batch_size=size, shuffle=shuffle)


def balancer_of(model, method="excess"):
    return excessmtl.create(method, tasks=TASKS, shared=model.trunk)


def optimizer_of(model, factor=1):
    """`factor`: what the gradients are multiplied by."""
    return torch.optim.SGD(model.parameters(), lr=0.1 / factor)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def backward(balancer, losses, accumulate, micro_batches):
    balancer.backward({task: loss / micro_batches for task, loss in losses.items()}, accumulate=accumulate)


def by_hand(method="excess", micro_batches=1, take_step=backward, factor=1):
    """Parameters and state after a plain loop over all batches."""
    model = Model()
    balancer, optimizer = balancer_of(model, method), optimizer_of(model, factor)
    for number, batch in enumerate(loader()):
        last = (number + 1) % micro_batches == 0 or number + 1 == STEPS
        take_step(balancer, model(**batch)["losses"], not last, micro_batches)
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return flat(model), balancer.state_dict()


def assert_same(found, expected):
    assert torch.allclose(found[0], expected[0], rtol=1e-5, atol=1e-7)
    for name, tensor in expected[1].items():
        assert torch.allclose(found[1][name].float(), tensor.float(), rtol=1e-5, atol=1e-7), name
