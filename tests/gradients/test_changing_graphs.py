"""Models, losses, hooks and batches that change between steps: every step agrees with one backward pass per task."""

import copy

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import l1_loss, mse_loss

from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import Fastest
from models import DEVICE, PAPER, ROBUST

FEATURES, WIDTH, TASKS = 5, 24, ["a", "b", "c"]
METHODS = [ROBUST, PAPER]


class Model(nn.Module):
    def __init__(self, deep):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
        layers = (nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, 2)) if deep else None for _ in TASKS)
        self.heads = nn.ModuleDict({task: one or nn.Linear(WIDTH, 2) for task, one in zip(TASKS, layers, strict=True)})

    def losses(self, x, loss=mse_loss):
        z = self.trunk(x)
        return {task: loss(head(z), x[:, :2]) for task, head in self.heads.items()}


def first_of(head):
    return head[0] if isinstance(head, nn.Sequential) else head


def exchange(model):
    model.heads["b"] = copy.deepcopy(model.heads["b"]).to(DEVICE)


def freeze(model):
    first_of(model.heads["a"]).bias.requires_grad_(False)


def hook(model):
    first_of(model.heads["c"]).weight.register_hook(lambda gradient: 2 * gradient)


def triple(leaf):
    leaf.grad *= 3


def hook_afterwards(model):
    first_of(model.heads["c"]).weight.register_post_accumulate_grad_hook(triple)


def keep_gradients(model):
    model.keep = True


CHANGES = {
    "nothing": (lambda model: None, {}),
    "a head is exchanged": (exchange, {}),
    "a leaf is frozen": (freeze, {}),
    "a hook on a leaf": (hook, {}),
    "a hook after a leaf": (hook_afterwards, {}),
    "gradients that are there": (keep_gradients, {}),
    "another loss": (lambda model: None, {"loss": l1_loss}),
    "a larger batch": (lambda model: None, {"size": 40}),
    "a smaller batch": (lambda model: None, {"size": 2}),
    "a task is missing": (lambda model: None, {"missing": "b"}),
    "tasks that meet": (lambda model: None, {"meet": True}),
}


def run(method, engine, deep, change, steps=5):
    """All gradients of the steps; the model changes before the last but one."""
    torch.manual_seed(0)
    model, found = Model(deep).to(DEVICE), []
    balancer = method.create(model.trunk, tasks=TASKS, engine=engine)
    changed, now = CHANGES[change]
    for step in range(steps):
        options = now if step >= steps - 2 else {}
        if step == steps - 2:
            changed(model)
        if not getattr(model, "keep", False):
            model.zero_grad()
        losses = model.losses(
            torch.randn(options.get("size", 12), FEATURES, device=DEVICE), options.get("loss", mse_loss)
        )
        if options.get("meet"):
            losses["b"] = losses["b"] + losses["a"]
        losses.pop(options.get("missing"), None)
        balancer.backward(losses)
        found.append([None if one.grad is None else one.grad.clone() for one in model.parameters()])
    return found


@pytest.mark.filterwarnings("ignore:2 parameters outside shared", "ignore:4 parameters outside shared")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("deep", [False, True], ids=["linear", "deep"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_what_changes_between_steps_is_noticed(method, deep, change):
    found, wanted = (run(method, engine, deep, change) for engine in (Fastest(), AnyGraph()))
    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("deep", [False, True], ids=["linear", "deep"])
def test_nothing_of_a_graph_stays_in_memory(deep):
    model = Model(deep)
    balancer = ROBUST.create(model.trunk, tasks=TASKS)
    outputs = []
    model.trunk.register_forward_hook(lambda module, args, z: outputs.append(StorageWeakRef(z.untyped_storage())))
    for _ in range(4):
        balancer.backward(model.losses(torch.randn(12, FEATURES)))
    assert all(storage.expired() for storage in outputs)
