"""Gradients delivered by a second backward pass from the losses, as under `fully_shard`, are those of one pass.

No process group is needed: the balancer is told that something is sharded. What FSDP does with it is tried in
`tests/integration/test_processes.py`.
"""

import gc
from itertools import pairwise

import pytest
import torch

from choices import PAPER_Z, ROBUST, UNIFORM, Method, both_forms
from excessmtl.distributed import fsdp
from models import DEVICE, batch, losses_of, mlp
from steps import gradients, started, take_step


@pytest.fixture
def told(monkeypatch):
    """A function that says whether something is sharded, which it can be where there are processes, if only one."""

    def tell(whether):
        monkeypatch.setattr(fsdp, "in_use", lambda: whether)
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: whether)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)

    return tell


def steps(method, model, scalar, losses, scaler):
    """Gradients and weights of three steps, and the state they lead to."""
    torch.manual_seed(3)
    balancer = method.create(model.trunk)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    gradients_and_weights = []
    for _ in range(3):
        x, targets = batch()
        optimiser.zero_grad()
        take_step(balancer, losses(model(x), targets), scalar, scaler)
        gradients_and_weights.append((gradients(model), balancer.last_step.weights))
        optimiser.step()
    return gradients_and_weights, balancer.state_dict()


def assert_same(told, method, scalar, make=mlp, losses=losses_of, scaler=None):
    told(False)
    expected = steps(method, make(), scalar, losses, scaler)
    told(True)
    torch.testing.assert_close(steps(method, make(), scalar, losses, scaler), expected)


BATCHES = {
    "as usual": losses_of,
    "a bad task": lambda *batch: {**losses_of(*batch), "b": losses_of(*batch)["b"] * torch.nan},
    "a missing task": lambda *batch: {**losses_of(*batch), "b": None},
}


@both_forms
@pytest.mark.parametrize("how", BATCHES)
@pytest.mark.parametrize("method", [UNIFORM, ROBUST, PAPER_Z, Method("graddrop")], ids=str)
def test_the_same_as_one_pass(told, method, how, scalar):
    assert_same(told, method, scalar, losses=BATCHES[how])


@both_forms
def test_mixed_precision_and_hooks_that_act_once(told, scalar):
    def hooked():
        model = mlp()
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient * 2)
        model.trunk.register_forward_hook(lambda module, args, z: z.register_hook(lambda dz: dz * 3) and None)
        return model

    assert_same(told, ROBUST, scalar, make=hooked, scaler=torch.amp.GradScaler(DEVICE.type, init_scale=64.0))


@pytest.mark.parametrize("passed", [False, True], ids=["before", "after"])
def test_the_scalar_may_be_scaled_and_passed_twice_and_a_loss_by_itself(told, passed):
    told(True)
    model, balancer = started(ROBUST)
    x, targets = batch()
    losses = losses_of(model(x), targets)
    loss = balancer(losses)
    if passed:
        loss.backward(retain_graph=True)
        once = gradients(model)
        (2 * loss).backward(retain_graph=True)
        torch.testing.assert_close(gradients(model), {name: 3 * gradient for name, gradient in once.items()})
        model.zero_grad()
    losses["a"].backward()
    alone = gradients(model)
    model.zero_grad()
    losses_of(model(x), targets)["a"].backward()
    torch.testing.assert_close(alone, gradients(model))


def test_losses_that_are_kept_keep_no_gradients(told):
    told(True)
    model, balancer = started(UNIFORM)
    kept, alive = [], []
    for _ in range(4):
        losses = losses_of(model(batch()[0]), batch()[1])
        balancer.backward(losses)
        model.zero_grad()
        kept.append(losses)
        gc.collect()
        alive.append(sum(type(thing) is torch.Tensor for thing in gc.get_objects()))
    new = {after - before for before, after in pairwise(alive[1:])}
    assert max(new) <= len(losses), f"more than the losses themselves stays alive: {new}"


@pytest.mark.parametrize("name", ["imtl", "gradnorm"])
def test_methods_on_shared_parameters_are_refused(told, name):
    told(True)
    model, balancer = started(Method(name))
    losses = losses_of(model(batch()[0]), batch()[1])
    with pytest.raises(ValueError, match=f"'{name}' looks at the gradients of shared parameters, and parameters are"):
        balancer.backward(losses)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_is_sharded_without_a_process_group():
    import torch.distributed.fsdp  # noqa: F401  # imported by somebody, used by nobody

    assert not fsdp.in_use()
