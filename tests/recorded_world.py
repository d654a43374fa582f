"""A small model that takes its steps plainly, or with recorded decisions; a stand-in for recordings."""

from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import mse_loss

import steps
from excessmtl.recording import recorded as recorded_engine
from excessmtl.recording.recorded import Recorded
from excessmtl.recording.recording import WARM_UP
from models import FEATURES, OUTPUTS, TASKS, WIDTH, MultiTask

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
    """A model with its balancer and optimiser; `steps` keeps all results."""

    def __init__(self, method, device, head="linear", **options):
        torch.manual_seed(1)
        trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.model = MultiTask(trunk, {task: HEADS[head](OUTPUTS[task]) for task in TASKS}).to(device)
        self.balancer = method.create(self.model.trunk, **options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.steps = []

    def compute(self, x, targets):
        """The losses."""
        outputs = self.model(x)
        return {task: mse_loss(outputs[task], y) for task, y in targets.items() if y is not None}

    def step(self, x, targets, **arguments):
        """One step, as the balancer takes it."""
        self.optimizer.zero_grad()
        taken = self.balancer.backward(self.compute(x, targets), **arguments)
        self.steps.append((taken.numbers.clone(), steps.gradients(self.model)))
        self.optimizer.step()
        return taken


def assert_same(one, two):
    """Parameters, buffers, statistics, and numbers and gradients of every step, to the last bit."""
    steps.assert_same(two.model.state_dict(), one.model.state_dict())
    states = [world.balancer.state_dict() for world in (one, two)]
    assert steps.host_state(states[0])["steps"] == steps.host_state(states[1])["steps"]
    steps.assert_same(states[1], states[0])
    steps.assert_same(two.steps, one.steps)


def recorded(balancer):
    """How many kinds of batches have a recording."""
    entries = balancer.engine.cache.entries if isinstance(balancer.engine, Recorded) else []
    return sum(entry.recorded is not None for entry in entries)


class StandIn:
    """In place of a `Recording`: making it runs nothing, replaying it does the work on what is in place.

    Results stay in the memory of the first replay, as those of a CUDA graph do: `kept` moves them there.
    """

    def __init__(self, work, stream, pool=None):
        self.work, self.result = work, None

    def replay(self):
        fresh = self.work()
        self.result = fresh if self.result is None else self.kept(self.result, fresh)


class StandInDecision(StandIn):
    def kept(self, first, fresh):
        old, new = ([one.step.numbers, *(part for _, part in one.parts)] for one in (first, fresh))
        for target, source in zip(old, new, strict=True):
            target.copy_(source)
        return replace(fresh, parts=first.parts, step=first.step)


def without_a_device(monkeypatch):
    """What is asked of CUDA where a stand-in takes the place of recordings."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(device=device))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(recorded_engine, "records_on", lambda device: True)
