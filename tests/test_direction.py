"""Rules that decide what the shared parameters get themselves, instead of one weight per task."""

import copy

import pytest
import torch

import excessmtl
from models import DEVICE, TASKS, batch, gradients, losses_of, mlp, plain_gradients, trained

DIRECTING = ["moco", "db_mtl", "trimmed_mean"]
each = pytest.mark.parametrize("name", DIRECTING)


def create(name, model, **options):
    return excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)


def first_direction(name, rows, losses):
    """What the first step has to give the shared parameters, from the rows [m, n] of the task gradients."""
    if name == "moco":
        return None  # depends on the weights; tested with the rule
    if name == "trimmed_mean":
        return rows.sort(0).values[1]  # three tasks: the median; times 3, divided by 3
    scaled = rows / losses[:, None]
    lengths = scaled.norm(dim=1, keepdim=True)
    return 0.1 * (scaled / lengths * lengths.max()).sum(0)


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("name", DIRECTING[1:])
def test_the_shared_parameters_get_it_and_the_heads_their_own(name, engine):
    model = mlp()
    x, targets = batch()
    losses = losses_of(model(x), targets)
    parameters = list(model.trunk.parameters())
    plain = plain_gradients(losses, parameters)
    rows = torch.stack([torch.cat([one.flatten() for one in plain[task]]) for task in TASKS])
    values = torch.stack([losses[task].detach() for task in TASKS])
    heads = {task: torch.autograd.grad(losses[task], model.heads[task].weight, retain_graph=True)[0] for task in TASKS}
    step = create(name, model, engine=engine).backward(losses)
    expected = first_direction(name, rows, values) * (3 if name == "trimmed_mean" else 1)
    found = torch.cat([parameter.grad.flatten() for parameter in parameters])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    for place, task in enumerate(TASKS):
        own = 1 if name == "trimmed_mean" else step.weights[place]
        torch.testing.assert_close(model.heads[task].weight.grad, own * heads[task])


@each
def test_micro_batches_are_one_batch(name):
    model = mlp()
    balancer = create(name, model)
    trained(balancer, model, 2)
    twin = copy.deepcopy(model)
    other = create(name, twin)
    other.load_state_dict(balancer.state_dict())
    x, targets = batch(16)
    model.zero_grad()
    twin.zero_grad()
    for part in (slice(0, 8), slice(8, 16)):
        losses = losses_of(model(x[part]), {task: one[part] for task, one in targets.items()})
        balancer.backward({task: loss / 2 for task, loss in losses.items()}, accumulate=part.start == 0)
    other.backward(losses_of(twin(x), targets))
    torch.testing.assert_close(gradients(model.trunk), gradients(twin.trunk), rtol=1e-4, atol=1e-5)


@each
def test_a_frozen_parameter_and_a_loss_scale(name):
    model = mlp()
    model.trunk[0].bias.requires_grad_(False)
    twin = copy.deepcopy(model)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    torch.manual_seed(3)
    x, targets = batch()
    create(name, model).backward(losses_of(model(x), targets))
    create(name, twin).backward(losses_of(twin(x), targets), scaler=scaler)
    scaled = {key: None if one is None else one / 8 for key, one in gradients(twin).items()}
    plain = gradients(model)
    assert plain.pop("trunk.0.bias") is None
    assert scaled.pop("trunk.0.bias") is None
    torch.testing.assert_close(scaled, plain)


@each
def test_floors_and_steps_without_a_decision_are_refused(name):
    model = mlp()
    with pytest.raises(ValueError, match="protect is not used"):
        create(name, model, protect={"a": 0.2})
    with pytest.raises(ValueError, match="every must be 1"):
        create(name, model, every=2)
