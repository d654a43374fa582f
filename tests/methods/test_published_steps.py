"""Steps of whole balancers as the papers and their authors' programs take them, worked out apart from the rules."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import excessmtl

TASKS = ["a", "b", "c"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 5)
        self.heads = nn.ModuleDict({task: nn.Linear(5, 1) for task in TASKS})

    def losses(self, x, y, tasks=TASKS):
        z = self.trunk(x).tanh()
        return {task: mse_loss(self.heads[task](z).squeeze(1), y[:, TASKS.index(task)]) for task in tasks}


def net_and_batch(seed=0, factors=(1.0, 3.0, 0.3)):
    torch.manual_seed(seed)
    return Net(), torch.randn(16, 4), torch.randn(16, 3) * torch.tensor(factors)


def move(model, rate=0.1):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad
            parameter.grad = None


# ------------------------------------------------------------------ GradNorm


def gradnorm_weights(weights, norms, losses, first, alpha=1.5, rate=0.2):
    """w(t+1) from w(t): a gradient step on sum_i |G_i - mean(G) r_i^alpha|, then the sum is m again."""
    scaled, progress = weights * norms, losses / first
    target = scaled.mean() * (progress / progress.mean()) ** alpha
    moved = weights - rate * np.sign(scaled - target) * norms
    assert (moved > 0.01).all()  # otherwise the library's lower limit of the weights would be tested
    return moved * weights.sum() / moved.sum()


def numbers(values):
    return np.array([value.item() for value in values])


@pytest.mark.parametrize("form", ["backward", "scalar"])
def test_gradnorm_trains_everything_with_the_weights_from_before_their_update(form):
    model, x, y = net_and_batch()
    balancer = excessmtl.create("gradnorm", tasks=TASKS, shared=model.trunk, layer=model.trunk.weight, step_size=0.2)
    weights, first = np.ones(3), None
    for _ in range(4):
        losses = list(model.losses(x, y).values())
        rows = [torch.autograd.grad(loss, model.trunk.weight, retain_graph=True)[0] for loss in losses]
        total = sum(float(weight) * loss for weight, loss in zip(weights, losses, strict=True))
        wanted = torch.autograd.grad(total, list(model.parameters()))
        if form == "backward":
            step = balancer.backward(model.losses(x, y))
        else:
            balancer(model.losses(x, y)).backward()
            step = balancer.last_step
        np.testing.assert_allclose(step.weights.numpy(), weights, rtol=1e-5)
        for parameter, gradient in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
        first = numbers(losses) if first is None else first
        weights = gradnorm_weights(weights, numbers(row.norm() for row in rows), numbers(losses), first)
        move(model, 0.05)
    assert np.abs(weights - 1).max() > 0.1


def test_gradnorm_goes_on_after_loading_with_the_weights_that_waited():
    model, x, y = net_and_batch()
    options = {"tasks": TASKS, "shared": model.trunk, "step_size": 0.2}
    balancer, other = excessmtl.create("gradnorm", **options), excessmtl.create("gradnorm", **options)
    first = balancer.backward(model.losses(x, y))
    other.load_state_dict(balancer.state_dict())
    steps = [one.backward(model.losses(x, y)) for one in (balancer, other)]
    assert first.weights.tolist() == [1, 1, 1]
    assert not torch.equal(steps[0].weights, first.weights)
    assert torch.equal(steps[0].weights, steps[1].weights)


def test_gradnorm_that_is_asked_every_second_step_keeps_its_weights_in_between():
    model, x, y = net_and_batch()
    options = {"tasks": TASKS, "shared": model.trunk, "step_size": 0.2}
    rare, often = excessmtl.create("gradnorm", every=2, **options), excessmtl.create("gradnorm", **options)
    weights = [rare.backward(model.losses(x, y)).weights for _ in range(4)]
    wanted = [often.backward(model.losses(x, y)).weights for _ in range(2)]
    for place, step in enumerate(weights):
        torch.testing.assert_close(step, wanted[place // 2])


def test_a_task_that_gradnorm_does_not_see_keeps_its_weight():
    model, x, y = net_and_batch()
    balancer = excessmtl.create("gradnorm", tasks=TASKS, shared=model.trunk, step_size=0.2)
    steps = [balancer.backward(model.losses(x, y)) for _ in range(2)]
    waiting = balancer.state["weights"].clone()
    step = balancer.backward(model.losses(x, y, ["a", "c"]))
    assert step.weights[1] == steps[-1].weights[1]
    torch.testing.assert_close(step.weights[[0, 2]], waiting[[0, 2]])
    after = balancer.backward(model.losses(x, y)).weights
    assert after[1] == waiting[1]
    assert after[0] != waiting[0]
    assert after.sum().item() == pytest.approx(3)


# ------------------------------------------------------------------ products of two batches


@pytest.mark.parametrize("kind", ["losses", "function"])
@pytest.mark.parametrize(
    ("name", "options"), [("modo", {"step_size": 0.3}), ("sdmgrad", {"step_size": 0.5})], ids=["modo", "sdmgrad"]
)
def test_the_same_batch_twice_gives_the_weights_of_its_gram_matrix(name, options, kind):
    """Heads' own gradients, which are long here, have no part in the products of two batches."""
    model, x, y = net_and_batch(factors=(1.0, 5.0, 0.5))
    twice, once = (excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options) for _ in range(2))
    for _ in range(3):
        second = model.losses(x, y) if kind == "losses" else lambda: model.losses(x, y)
        step = twice.backward(model.losses(x, y), validation_losses=second)
        model.zero_grad()
        torch.testing.assert_close(step.weights, once.backward(model.losses(x, y)).weights, rtol=1e-4, atol=1e-5)
        move(model)
    assert (step.weights - 1).abs().max() > 0.05


def test_modo_multiplies_gradients_of_two_batches_at_the_shared_parameters():
    model, x, y = net_and_batch()
    _, other_x, other_y = net_and_batch(1)
    balancer = excessmtl.create("modo", tasks=TASKS, shared=model.trunk, step_size=0.3, rho=0.1, scale="mean")
    trunk = list(model.trunk.parameters())

    def rows(losses):
        found = [torch.autograd.grad(loss, trunk, retain_graph=True) for loss in losses.values()]
        return np.stack([torch.cat([part.flatten() for part in parts]).numpy() for parts in found])

    products = rows(model.losses(other_x, other_y)) @ rows(model.losses(x, y)).T
    before = np.full(3, 1 / 3)
    moved = before - 0.3 * (products @ before + 0.1 * before)
    step = balancer.backward(model.losses(x, y), validation_losses=model.losses(other_x, other_y))
    np.testing.assert_allclose(step.weights.numpy(), on_simplex(moved), rtol=1e-4, atol=1e-6)


def on_simplex(point):
    """The nearest point of the simplex, by bisection of what is taken from every coordinate."""
    low, high = point.min() - 1, point.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(point - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(point - low, 0)


# ------------------------------------------------------------------ STCH


@pytest.mark.parametrize("warmup", [0, 2])
def test_stch_warms_up_to_the_end_of_epoch_w_whose_mean_losses_are_the_nadir(warmup):
    theta = nn.Parameter(torch.ones(()))
    balancer = excessmtl.create("stch", tasks=["a", "b"], shared=[theta], warmup_epochs=warmup, mu=0.5)
    epochs = [[(1.0, 8.0), (3.0, 4.0)], [(2.0, 2.0), (4.0, 1.0)], [(1.0, 5.0), (2.0, 1.0)], [(3.0, 0.5), (0.5, 2.0)]]
    for number, epoch in enumerate(epochs):
        for losses in epoch:
            step = balancer.backward({task: value * theta for task, value in zip("ab", losses, strict=True)})
            loss = np.array(losses)
            if number <= warmup:
                wanted = 1 / loss
            else:
                powers = (loss / np.mean(epochs[warmup], axis=0)) ** (1 / 0.5)
                wanted = 2 * powers / powers.sum() / loss
            np.testing.assert_allclose(step.weights.numpy(), wanted, rtol=1e-5)
        balancer.end_epoch()


# ------------------------------------------------------------------ MOML


UPPER = np.array([[5.0, -5.0, 0.0], [0.0, 1.0, -1.0], [5.0, -5.0, 0.0]])
"""Gradients of the validation losses by theta, where the training loss of task i is theta_i and theta is zero."""


def logits_after_a_step(losses, **options):
    theta = nn.Parameter(torch.zeros(3))
    balancer = excessmtl.create("moml", tasks=TASKS, shared=[theta], **options)
    gradients = torch.tensor(UPPER, dtype=torch.float32)
    validation = {task: theta @ gradients[i] + losses[i] for i, task in enumerate(TASKS)}
    balancer.backward({task: theta[i] * 1 for i, task in enumerate(TASKS)}, validation_losses=validation)
    return balancer.state["logits"].numpy()


@pytest.mark.parametrize(
    ("options", "losses", "share"),
    [
        ({}, (1.0, 1.0, 1.0), 1 / 2),
        ({"normalize": "l2"}, (1.0, 10.0, 1.0), 1 / 2),
        ({"normalize": "none"}, (1.0, 10.0, 1.0), 7 / 62),
        ({"normalize": "loss"}, (1.0, 10.0, 1.0), 0.52 / 51.02),
        ({"normalize": "loss"}, (10.0, 1.0, 10.0), 2.5 / 3.5),
    ],
)
def test_moml_normalises_the_upper_level_gradients_for_the_min_norm_problem_alone(options, losses, share):
    """At s = 1/3 they are -eta / 3 times the rows, which sum to zero: twice 5 u and once v, u.u = v.v = 2, u.v = -1.

    The shortest of the segment from x to w has the share w.(w - x) / |x - w|^2 of x. p moves against share 5 u +
    (1 - share) v, by Adam's first step: by the rate, whatever the length.
    """
    direction = share * UPPER[0] + (1 - share) * UPPER[1]
    found = logits_after_a_step(losses, step_size=0.01, **options)
    np.testing.assert_allclose(found, 0.01 * np.sign(direction), rtol=1e-3)


def test_moml_knows_a_validation_loss_of_zero_and_a_gradient_of_zero():
    for normalize in ("none", "l2", "loss"):
        assert np.isfinite(logits_after_a_step((0.0, 1.0, 0.0), normalize=normalize)).all()
    theta = nn.Parameter(torch.zeros(3))
    balancer = excessmtl.create("moml", tasks=TASKS, shared=[theta])
    losses = {task: theta[i] * 1 for i, task in enumerate(TASKS)}
    step = balancer.backward(losses, validation_losses={task: theta.sum() for task in TASKS})  # h = 0
    assert step.weights.tolist() == [1, 1, 1]


# ------------------------------------------------------------------ FairGrad


@pytest.mark.parametrize(("alpha", "size"), [(1.0, 1.0), (2.0, 1.0), (2.0, 1e4)])
def test_fairgrad_steps_as_the_authors_program_does(alpha, size):
    """m d, no longer than 1, on the shared parameters; the plain gradient of its loss on a head."""
    torch.manual_seed(0)
    model, x = nn.ModuleDict({"trunk": nn.Linear(4, 3), "a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}), torch.randn(8, 4)

    def losses():
        z = model["trunk"](x)
        return {task: size * model[task](z).square().mean() for task in "ab"}

    trunk = list(model["trunk"].parameters())
    parts = [torch.autograd.grad(loss, trunk, retain_graph=True) for loss in losses().values()]
    rows = np.stack([torch.cat([one.flatten() for one in task]).double().numpy() for task in parts])
    heads = [torch.autograd.grad(loss, list(model[task].parameters())) for task, loss in losses().items()]
    plain = excessmtl.create("fairgrad", tasks=["a", "b"], shared=model["trunk"], alpha=alpha, max_norm=None)
    w = plain.backward(losses()).weights.double().numpy()
    np.testing.assert_allclose(rows @ rows.T @ w, w ** (-1 / alpha), rtol=1e-3)
    model.zero_grad()
    step = excessmtl.create("fairgrad", tasks=["a", "b"], shared=model["trunk"], alpha=alpha).backward(losses())
    length = np.linalg.norm(2 * w @ rows)
    assert (length < 1) == (size > 1)  # both cases occur
    wanted = 2 * w / max(length, 1)
    np.testing.assert_allclose(step.weights.numpy(), wanted, rtol=1e-3)
    found = torch.cat([parameter.grad.flatten() for parameter in trunk]).numpy()
    np.testing.assert_allclose(found, wanted @ rows, rtol=1e-3, atol=1e-3 * np.abs(wanted @ rows).max())
    for task, gradients in zip("ab", heads, strict=True):
        for parameter, gradient in zip(model[task].parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


# ------------------------------------------------------------------ states from before these options


def without_option(state_dict, name):
    """The state as a release wrote it that did not have the option."""
    from excessmtl.step.host_state import decoded, encoded

    saved = copy.copy(state_dict)
    plain = decoded(saved["memory._extra_state"])
    steps, random = plain.pop("steps"), plain.pop("random")
    del plain["options"][name]
    saved["memory._extra_state"] = encoded(plain, steps, random)
    return saved


@pytest.mark.parametrize(("name", "option", "meant"), [("moml", "normalize", "none"), ("fairgrad", "max_norm", None)])
def test_a_state_from_before_an_option_is_taken_where_the_option_says_what_was_done_then(name, option, meant):
    model, x, y = net_and_batch()

    def balancer(**options):
        return excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)

    old = balancer(**{option: meant})
    old.backward(model.losses(x, y))
    saved = without_option(old.state_dict(), option)
    again = balancer(**{option: meant})
    again.load_state_dict(saved)
    assert torch.equal(old.backward(model.losses(x, y)).weights, again.backward(model.losses(x, y)).weights)
    with pytest.raises(ValueError, match=f"state was saved with {option}={meant!r}, this balancer has {option}="):
        balancer().load_state_dict(saved)
