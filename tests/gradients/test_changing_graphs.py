"""Models, losses, hooks and batches that change between steps: every step agrees with one backward pass per task."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import l1_loss, mse_loss

from choices import PAPER, ROBUST
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import Fastest
from models import DEVICE, FEATURES, TASKS, WIDTH, MultiTask


def model_of(deep):
    torch.manual_seed(0)
    layers = {task: nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, 2)) for task in TASKS}
    return MultiTask(heads=layers if deep else {task: nn.Linear(WIDTH, 2) for task in TASKS}).to(DEVICE)


def losses_of(model, size=12, loss=mse_loss):
    x = torch.randn(size, FEATURES, device=DEVICE)
    return {task: loss(output, x[:, :2]) for task, output in model(x).items()}


def first_of(head):
    return head[0] if isinstance(head, nn.Sequential) else head


def exchange_a_head(model):
    model.heads["b"] = copy.deepcopy(model.heads["b"]).to(DEVICE)


def freeze_a_leaf(model):
    first_of(model.heads["a"]).bias.requires_grad_(False)


def hook_a_leaf(model):
    first_of(model.heads["c"]).weight.register_hook(lambda gradient: 2 * gradient)


def triple(leaf):
    leaf.grad *= 3


def hook_a_leaf_afterwards(model):
    first_of(model.heads["c"]).weight.register_post_accumulate_grad_hook(triple)


CHANGES = [exchange_a_head, freeze_a_leaf, hook_a_leaf, hook_a_leaf_afterwards]
BATCHES = [{}, {"loss": l1_loss}, {"size": 40}, {"size": 2}]


def run(method, engine, deep):
    """All gradients of the steps. A change of the model comes after every three; gradients are kept at times."""
    model = model_of(deep)
    balancer, computed = method.create(model.trunk, engine=engine), []
    for step in range(18):
        if step % 3 == 2 and step // 3 < len(CHANGES):
            CHANGES[step // 3](model)
        if step % 5:
            model.zero_grad()
        losses = losses_of(model, **BATCHES[step % 4])
        if step in (7, 14):
            losses["b"] = losses["b"] + losses["a"]  # tasks that meet
        if step in (4, 15):
            del losses["b"]
        balancer.backward(losses)
        computed.append([None if leaf.grad is None else leaf.grad.clone() for leaf in model.parameters()])
    return computed


@pytest.mark.filterwarnings("ignore:.* parameters outside shared")
@pytest.mark.parametrize("deep", [False, True], ids=["linear", "deep"])
@pytest.mark.parametrize("method", [ROBUST, PAPER], ids=str)
def test_what_changes_between_steps_is_noticed(method, deep):
    computed, wanted = (run(method, engine, deep) for engine in (Fastest(), AnyGraph()))
    for step, pair in enumerate(zip(computed, wanted, strict=True)):
        torch.testing.assert_close(*pair, rtol=2e-4, atol=1e-6, msg=lambda words, step=step: f"step {step}: {words}")
