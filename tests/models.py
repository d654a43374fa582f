"""Tiny models, their batches and losses."""

import os

import torch
from torch import nn
from torch.nn.functional import mse_loss

DEVICE = torch.device(os.environ.get("EXCESSMTL_TEST_DEVICE", "cpu"))
TASKS = ["a", "b", "c"]
FEATURES, WIDTH, BATCH = 6, 16, 8
OUTPUTS = {"a": 3, "b": 1, "c": 2}


class MultiTask(nn.Module):
    """A trunk and one head per task."""

    def __init__(self, trunk=None, heads=None):
        super().__init__()
        self.trunk = trunk or nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
        self.heads = nn.ModuleDict(heads or {task: nn.Linear(WIDTH, OUTPUTS[task]) for task in TASKS})

    def forward(self, x):
        z = self.trunk(x)
        return {task: head(z) for task, head in self.heads.items()}

    def losses(self, size=BATCH):
        """Of a new batch."""
        x, targets = batch(size)
        return losses_of(self(x), targets)


class OneHead(nn.Module):
    """One linear layer for all tasks."""

    def __init__(self, width=WIDTH, bias=True):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(FEATURES, width), nn.Tanh())
        self.head = nn.Linear(width, len(TASKS), bias=bias)
        self.to(DEVICE)

    def forward(self, x):
        return self.head(self.trunk(x))


def batch(size=BATCH):
    """Inputs and targets of the tasks."""
    x = torch.randn(size, FEATURES, device=DEVICE)
    return x, {task: torch.randn(size, width, device=DEVICE) for task, width in OUTPUTS.items()}


def losses_of(outputs, targets):
    return {task: mse_loss(outputs[task], targets[task]) for task in outputs}


def heads_on(model, z, targets):
    """The loss of every head at a representation."""
    return losses_of({task: head(z) for task, head in model.heads.items()}, targets)


def mlp():
    torch.manual_seed(1)
    return MultiTask().to(DEVICE)
