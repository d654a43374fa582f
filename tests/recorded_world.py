"""A small model whose balancer records its arithmetic, and what stands in for a recording without a CUDA device."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import mse_loss

from excessmtl.recording.recorded import Recorded
from excessmtl.recording.recording import WARM_UP
from models import DEVICE, FEATURES, OUTPUTS, ROBUST, TASKS, WIDTH, MultiTask, host_state

HEADS = {
    "linear": lambda width: nn.Linear(WIDTH, width),
    "no bias": lambda width: nn.Linear(WIDTH, width, bias=False),
    "deep": lambda width: nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, width)),
    "product": lambda width: Scaled(width),
}
STEPS = WARM_UP + 5


class Scaled(nn.Module):
    """Not a linear layer: its gradients are taken at z."""

    def __init__(self, width):
        super().__init__()
        self.scale, self.width = nn.Parameter(torch.ones(WIDTH)), width

    def forward(self, z):
        return (z * self.scale)[:, : self.width]


class World:
    """A model, its balancer and its optimiser, the same for the same arguments."""

    def __init__(self, method=ROBUST, kind="linear", record=True, **options):
        torch.manual_seed(1)
        trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.model = MultiTask(trunk, {task: HEADS[kind](OUTPUTS[task]) for task in TASKS}).to(DEVICE)
        self.balancer = method.create(self.model.trunk, record=record, **options)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.seen = []

    def losses(self, seed, size=8, missing=(), bad=()):
        generator = torch.Generator().manual_seed(seed)

        def draw(width):
            return torch.randn(size, width, generator=generator).to(DEVICE)

        outputs = self.model(draw(FEATURES))
        losses = {task: mse_loss(outputs[task], draw(width)) for task, width in OUTPUTS.items()}
        return {task: loss * (torch.nan if task in bad else 1) for task, loss in losses.items() if task not in missing}

    def step(self, seed, arguments=None, **batch):
        self.optimiser.zero_grad()
        step = self.balancer.backward(self.losses(seed, **batch), **(arguments or {}))
        gradients = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
        self.seen.append((step.numbers.clone(), gradients))
        self.optimiser.step()
        return step


def both(*arguments, **options):
    return World(*arguments, record=False, **options), World(*arguments, **options)


def take(seeds, *worlds, **batch):
    """The same steps in all of them."""
    for seed in seeds:
        for world in worlds:
            world.step(seed, **batch)


def assert_same(plain, ours):
    for (numbers, gradients), (wanted, wanted_gradients) in zip(ours.seen, plain.seen, strict=True):
        torch.testing.assert_close(numbers, wanted, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(gradients, wanted_gradients, rtol=0, atol=0)
    states = [world.balancer.state_dict() for world in (ours, plain)]
    assert host_state(states[0])["steps"] == host_state(states[1])["steps"]
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0, equal_nan=True)


class Again:
    """Stands in for a `Recording`: making it runs nothing, replaying it does the work on whatever is in place.

    Results stay in the memory of the first replay, as those of a CUDA graph do.
    """

    def __init__(self, work, memory, stream, pool=None):
        self.work, self.result = work, None

    def replay(self):
        fresh = self.work()
        if self.result is not None:
            old, new = ([one.step.numbers, *(part for _, part in one.parts)] for one in (self.result, fresh))
            for target, source in zip(old, new, strict=True):
                target.copy_(source)
            fresh = replace(fresh, parts=self.result.parts, step=self.result.step)
        self.result = fresh


class Stream:
    def __init__(self, device):
        self.device = device


def recorded(balancer):
    """How many kinds of batches have a recording."""
    entries = balancer.engine.cache.entries if isinstance(balancer.engine, Recorded) else []
    return sum(entry.recorded is not None for entry in entries)
