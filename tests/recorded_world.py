"""A small model that takes its steps plainly, with recorded decisions or by `Replay`; stand-ins for recordings."""

import copy
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl
from choices import Method
from excessmtl.recording import replay as replay_module
from excessmtl.recording.recorded import Recorded
from excessmtl.recording.recording import WARM_UP
from models import FEATURES, OUTPUTS, TASKS, WIDTH, MultiTask
from steps import gradients, host_state

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


def batches(count, size=8, device="cpu", seed=3):
    """The same for the same arguments: inputs, and targets by task."""
    generator = torch.Generator().manual_seed(seed)

    def draw(width):
        return torch.randn(size, width, generator=generator).to(device)

    return [(draw(FEATURES), {task: draw(OUTPUTS[task]) for task in TASKS}) for _ in range(count)]


class World:
    """A model with its balancer and optimiser; `calls` counts how often its Python ran, `steps` keeps all results."""

    def __init__(self, method, device="cpu", trunk=None, parameters=False, optimizer=None, head="linear", **options):
        torch.manual_seed(1)
        trunk = trunk() if trunk else nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.model = MultiTask(trunk, {task: HEADS[head](OUTPUTS[task]) for task in TASKS}).to(device)
        method = Method(method) if isinstance(method, str) else method
        shared = list(self.model.trunk.parameters()) if parameters else self.model.trunk
        self.balancer = method.create(shared, **options)
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

    def step(self, x, targets, **arguments):
        """One plain step, as the balancer takes it."""
        return self.take(lambda x, targets: self.balancer.backward(self.compute(x, targets), **arguments), x, targets)

    def take(self, step, x, targets):
        """One step by a function without an optimiser, such as a replay."""
        self.optimizer.zero_grad()
        taken = step(x, targets)
        self.steps.append((taken.numbers.clone(), gradients(self.model)))
        self.optimizer.step()
        return taken


def assert_same(one, two):
    """Parameters, buffers, statistics, and numbers and gradients of every step, to the last bit."""
    exactly = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(two.model.state_dict(), one.model.state_dict(), **exactly)
    states = [world.balancer.state_dict() for world in (one, two)]
    assert host_state(states[0])["steps"] == host_state(states[1])["steps"]
    torch.testing.assert_close(states[1], states[0], **exactly)
    count = min(len(one.steps), len(two.steps))  # a replay with an optimiser leaves none
    torch.testing.assert_close(two.steps[:count], one.steps[:count], **exactly)


def recorded(balancer):
    """How many kinds of batches have a recording."""
    entries = balancer.engine.cache.entries if isinstance(balancer.engine, Recorded) else []
    return sum(entry.recorded is not None for entry in entries)


class StandInDecision:
    """In place of a `Recording` of a decision: making it runs nothing, replaying it does the work on what is in place.

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


class StandInStep:
    """In place of a `Recording` of a whole step: runs the work anew, into the tensors it left the first time."""

    parameters = ()

    def __init__(self, work, memory, stream, pool=None):
        self.work, self.replays = work, 0
        before = copy.deepcopy(memory.state_dict())
        self.result = work()
        self.gradients = [(p, p.grad) for p in StandInStep.parameters if p.grad is not None]
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
        made.append(StandInStep(*arguments))
        return made[-1]

    monkeypatch.setattr(replay_module, "Recording", record)
    monkeypatch.setattr(replay_module, "on_stream", lambda stream, device: nullcontext())
    monkeypatch.setattr(excessmtl.Replay, "_obstacle", lambda self, device: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(device=device))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return made
