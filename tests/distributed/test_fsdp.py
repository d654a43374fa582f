"""Gradients delivered by a second backward pass from the losses, as under `fully_shard`, are those of one pass.

No process group is needed: the balancer is told that something is sharded. What FSDP does with it is tried in
`tests/integration/test_fully_sharded.py`.
"""

import pytest
import torch

from excessmtl.distributed import fsdp
from models import DEVICE, PAPER_Z, ROBUST, UNIFORM, Method, batch, gradients, losses_of, mlp

METHODS = [UNIFORM, ROBUST, PAPER_Z, Method("mgda", {"probe": "representation"}), Method("graddrop"), Method("uw")]
each_method = pytest.mark.parametrize("method", METHODS, ids=str)
each_form = pytest.mark.parametrize("scalar", [False, True], ids=["backward", "scalar"])
STEPS = 3


@pytest.fixture
def told(monkeypatch):
    """A function that says whether something is sharded, which it can be where there are processes, if only one."""

    def tell(whether):
        monkeypatch.setattr(fsdp, "in_use", lambda: whether)
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: whether)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)

    return tell


def steps(method, model, scalar, losses=losses_of, scaler=None):
    """Gradients and weights of a few steps, and the state they lead to."""
    torch.manual_seed(3)
    balancer = method.create(model.trunk)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    found = []
    for _ in range(STEPS):
        x, targets = batch()
        optimiser.zero_grad()
        values = losses(model(x), targets)
        if not scalar:
            step = balancer.backward(values, scaler=scaler)
        else:
            loss = balancer(values, scaler=scaler)
            (loss if scaler is None else scaler.scale(loss)).backward()
            step = balancer.last_step
        found.append((gradients(model), step.weights))
        optimiser.step()
    return found, {name: value for name, value in balancer.state_dict().items() if isinstance(value, torch.Tensor)}


def assert_same(told, method, scalar, make=mlp, **arguments):
    one, two = make(), make()
    told(False)
    expected = steps(method, one, scalar, **arguments)
    told(True)
    torch.testing.assert_close(steps(method, two, scalar, **arguments), expected)


BATCHES = {
    "as usual": losses_of,
    "a bad task": lambda *batch: {**losses_of(*batch), "b": losses_of(*batch)["b"] * torch.nan},
    "a missing task": lambda *batch: {**losses_of(*batch), "b": None},
}


@each_form
@pytest.mark.parametrize("how", BATCHES)
@each_method
def test_the_same_as_one_pass(told, method, how, scalar):
    assert_same(told, method, scalar, losses=BATCHES[how])


@each_form
def test_mixed_precision(told, scalar):
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=64.0)
    assert_same(told, ROBUST, scalar, scaler=scaler)


@each_form
def test_hooks_act_once(told, scalar):
    def hooked():
        model = mlp()
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient * 2)
        model.trunk.register_forward_hook(lambda module, args, z: z.register_hook(lambda dz: dz * 3) and None)
        return model

    assert_same(told, ROBUST, scalar, make=hooked)


def one_scalar(told):
    told(True)
    model = mlp()
    balancer = ROBUST.create(model.trunk)
    x, targets = batch()
    losses = losses_of(model(x), targets)
    return model, (x, targets), losses, balancer(losses)


def test_the_scalar_can_be_walked_twice_and_scaled(told):
    model, _, _, loss = one_scalar(told)
    loss.backward(retain_graph=True)
    once = gradients(model)
    (2 * loss).backward()
    torch.testing.assert_close(gradients(model), {name: 3 * gradient for name, gradient in once.items()})


@pytest.mark.parametrize("walked", [False, True], ids=["before", "after"])
def test_a_loss_of_its_own_beside_the_walk_of_the_scalar(told, walked):
    model, (x, targets), losses, loss = one_scalar(told)
    if walked:
        loss.backward(retain_graph=True)
        model.zero_grad()
    losses["a"].backward()
    found = gradients(model)
    model.zero_grad()
    losses_of(model(x), targets)["a"].backward()
    torch.testing.assert_close(found, gradients(model))


@pytest.mark.parametrize("name", ["imtl", "gradnorm", "moml"])
def test_methods_on_shared_parameters_are_refused(told, name):
    told(True)
    model = mlp()
    balancer = Method(name).create(model.trunk)
    losses = losses_of(model(batch()[0]), batch()[1])
    with pytest.raises(
        ValueError, match=f"'{name}' looks at the gradients of shared parameters, and parameters are spread"
    ):
        balancer.backward(losses)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_is_sharded_without_a_process_group():
    import torch.distributed.fsdp  # noqa: F401  # imported by somebody, used by nobody

    assert not fsdp.in_use()
