"""A small model that takes its steps plainly or by `Replay`, and what stands in for a recording without a device."""

import copy
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from excessmtl.recording import replay as replay_module
from models import FEATURES, OUTPUTS, TASKS, WIDTH, MultiTask, host_state

__all__ = ["TASKS", "Again", "World", "assert_same", "batches", "stand_in"]


def batches(count, size=8, device="cpu", seed=3):
    """The same for the same arguments: inputs, and targets by task."""
    generator = torch.Generator().manual_seed(seed)

    def draw(width):
        return torch.randn(size, width, generator=generator).to(device)

    return [(draw(FEATURES), {task: draw(OUTPUTS[task]) for task in TASKS}) for _ in range(count)]


class World:
    """A model with its balancer and optimiser; `calls` counts how often its Python ran, `steps` keeps all results."""

    def __init__(self, method, device="cpu", trunk=None, parameters=False, optimizer=None, **options):
        torch.manual_seed(1)
        trunk = trunk() if trunk else nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.model = MultiTask(trunk).to(device)
        shared = self.model.trunk
        if parameters:
            shared = list(shared.parameters())
        self.balancer = excessmtl.create(method, tasks=TASKS, shared=shared, **options)
        make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9))
        self.optimizer = make(self.model.parameters())
        self.calls, self.fault = 0, None
        self.steps = []

    def losses(self, z, targets):
        heads = self.model.heads
        return {task: mse_loss(heads[task](z), y) for task, y in targets.items() if y is not None}

    def compute(self, x, targets):
        self.calls += 1
        if self.fault:
            raise OSError(self.fault)
        return self.losses(self.model.trunk(x), targets)

    def replay(self):
        return excessmtl.Replay(self.balancer, self.compute)

    def step(self, x, targets):
        """One plain step."""
        self.optimizer.zero_grad()
        self.steps.append(self.balancer.backward(self.compute(x, targets)))
        self.optimizer.step()
        return self.steps[-1]

    def take(self, replay, x, targets):
        """One step by a replay without an optimiser."""
        self.optimizer.zero_grad()
        self.steps.append(replay(x, targets))
        self.optimizer.step()
        return self.steps[-1]


def assert_same(one, two):
    """Parameters, buffers, statistics and results, to the last bit."""
    torch.testing.assert_close(two.model.state_dict(), one.model.state_dict(), rtol=0, atol=0)
    states = [world.balancer.state_dict() for world in (one, two)]
    assert host_state(states[0])["steps"] == host_state(states[1])["steps"]
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0, equal_nan=True)
    for first, second in zip(one.steps, two.steps, strict=False):
        for name in ("weights", "losses", "excess_risks"):
            torch.testing.assert_close(getattr(second, name), getattr(first, name), rtol=0, atol=0, equal_nan=True)


class Again:
    """Stands in for a `Recording`: runs the work anew, into the tensors it left the first time."""

    parameters = ()

    def __init__(self, work, memory, stream, pool=None):
        self.work, self.replays = work, 0
        before = copy.deepcopy(memory.state_dict())
        self.result = work()
        self.gradients = [(p, p.grad) for p in Again.parameters if p.grad is not None]
        memory.load_state_dict(before)

    def replay(self):
        self.replays += 1
        self.result.copy_(self.work())
        for parameter, gradient in self.gradients:
            gradient.copy_(parameter.grad)
            parameter.grad = None  # as if no line of Python had run


def stand_in(monkeypatch, made):
    """Steps are recorded on a CPU from now on; the recordings join `made`."""

    def record(*arguments):
        made.append(Again(*arguments))
        return made[-1]

    monkeypatch.setattr(replay_module, "Recording", record)
    monkeypatch.setattr(replay_module, "on_stream", lambda stream, device: nullcontext())
    monkeypatch.setattr(excessmtl.Replay, "_obstacle", lambda self, device: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(device=device))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return made
