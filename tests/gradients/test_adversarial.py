"""What users do to a graph that the engine did not build: every way to the gradients must do what autograd does."""

import pytest
import torch
from torch import nn

import models
from models import DEVICE, ENGINES, PAPER, PAPER_Z, ROBUST, UNIFORM, Method

FEATURES, WIDTH, BATCH = 6, 48, 8
METHODS = [UNIFORM, ROBUST, PAPER, PAPER_Z, Method("mgda", {"probe": "representation"})]
each_method = pytest.mark.parametrize("method", METHODS, ids=str)


@pytest.fixture(params=ENGINES)
def way(request, monkeypatch):
    """Every test here runs with the ways for linear heads, for any heads, and with the reference."""
    monkeypatch.setattr(models, "ENGINE", ENGINES[request.param])
    return request.param


pytestmark = pytest.mark.usefixtures("way")


class Model(nn.Module):
    """A trunk and three linear heads."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
        self.heads = nn.ModuleDict({task: nn.Linear(WIDTH, 1) for task in "abc"})
        self.to(DEVICE)

    def losses(self, z):
        return {task: (head(z) - 0.5).square().mean() for task, head in self.heads.items()}

    def gradients(self):
        return {name: parameter.grad.clone() for name, parameter in self.named_parameters()}


def inputs():
    return torch.arange(BATCH * FEATURES, device=DEVICE).reshape(BATCH, FEATURES).float().sin()


def taken(method, model, z=None, losses=None, **options):
    """Weights and gradients of one step."""
    balancer = method.create(model.trunk, tasks=list("abc"), **options)
    if z is None:
        z = model.trunk(inputs())
    step = balancer.backward(model.losses(z) if losses is None else losses(z))
    return step, model.gradients()


def doubled(gradient):
    return gradient * 2


# ------------------------------------------------------------------ hooks


@each_method
def test_hooks_on_parameters_act_once(method):
    step, plain = taken(method, Model())
    model = Model()
    for parameter in model.parameters():
        parameter.register_hook(doubled)
    hooked_step, hooked = taken(method, model)
    torch.testing.assert_close(hooked_step.weights, step.weights)
    torch.testing.assert_close(hooked, {name: 2 * gradient for name, gradient in plain.items()})


@each_method
def test_hooks_on_parameters_act_once_in_the_scalar_form(method):
    found = []
    for factor in (1, 2):
        model = Model()
        balancer = method.create(model.trunk, tasks=list("abc"))
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient, factor=factor: gradient * factor)
        balancer(model.losses(model.trunk(inputs()))).backward()
        found.append(model.gradients())
    torch.testing.assert_close(found[1], {name: 2 * gradient for name, gradient in found[0].items()})


def test_hooks_on_parameters_act_once_where_no_representation_is_known():
    found = []
    for factor in (1, 2):
        model = Model()
        balancer = UNIFORM.create(list(model.trunk.parameters()), tasks=list("abc"))
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient, factor=factor: gradient * factor)
        balancer.backward(model.losses(model.trunk(inputs())))
        found.append(model.gradients())
    torch.testing.assert_close(found[1], {name: 2 * gradient for name, gradient in found[0].items()})


@each_method
def test_a_hook_on_the_representation_acts_once(method):
    _, plain = taken(method, Model())
    model = Model()
    balancer = method.create(model.trunk, tasks=list("abc"))  # before the forward, to see it
    z = model.trunk(inputs())
    z.register_hook(doubled)
    balancer.backward(model.losses(z))
    if method is not PAPER:  # which looks at the trunk's gradients: other weights follow
        for name, gradient in plain.items():
            factor = 2 if name.startswith("trunk") else 1
            torch.testing.assert_close(model.get_parameter(name).grad, factor * gradient)


class Summing(nn.Module):
    """A head whose first operation does not need its input once more."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1))

    def forward(self, z):
        return z.sum(1) * self.weight


@pytest.mark.parametrize("scalar", [False, True], ids=["backward", "scalar"])
@each_method
def test_a_hook_on_a_representation_that_nobody_holds_acts_once(method, scalar):
    found = []
    for factor in (1, 2):
        model = Model()
        model.trunk = nn.Linear(FEATURES, WIDTH).to(DEVICE)
        nn.init.ones_(model.trunk.weight)
        nn.init.zeros_(model.trunk.bias)
        torch.manual_seed(1)
        model.heads = nn.ModuleDict({task: Summing() for task in "abc"}).to(DEVICE)
        balancer = method.create(model.trunk, tasks=list("abc"))
        z = model.trunk(inputs())
        z.register_hook(lambda gradient, factor=factor: gradient * factor)
        losses = model.losses(z)
        del z
        if scalar:
            balancer(losses).backward()
        else:
            balancer.backward(losses)
        found.append(model.gradients())
    if method is not PAPER:  # as above
        wanted = {name: (2 if name.startswith("trunk") else 1) * gradient for name, gradient in found[0].items()}
        torch.testing.assert_close(found[1], wanted)


@pytest.mark.parametrize("method", [UNIFORM, ROBUST], ids=str)
def test_a_retained_gradient_of_the_representation_is_the_one_sent_down(method):
    model = Model()
    balancer = method.create(model.trunk, tasks=list("abc"))
    z = model.trunk(inputs())
    z.retain_grad()
    calls = []
    z.register_hook(calls.append)
    step = balancer.backward({task: loss + z.square().mean() for task, loss in model.losses(z).items()})
    again = model.trunk(inputs()).detach().requires_grad_()
    losses = [loss + again.square().mean() for loss in model.losses(again).values()]
    (wanted,) = torch.autograd.grad(losses, again, list(step.weights))
    torch.testing.assert_close(z.grad, wanted)
    assert len(calls) == 1


@pytest.mark.parametrize("method", [UNIFORM, ROBUST, METHODS[-1]], ids=str)  # their weights know no unit
def test_a_hook_on_the_output_of_a_head_acts_on_all_below(method):
    def losses(model, factor):
        def hooked(z):
            outputs = {task: head(z) for task, head in model.heads.items()}
            for output in outputs.values():
                output.register_hook(doubled if factor == 2 else torch.clone)
            return {task: (output - 0.5).square().mean() for task, output in outputs.items()}

        return hooked

    found = []
    for factor in (1, 2):
        model = Model()
        balancer = method.create(model.trunk, tasks=list("abc"))
        balancer.backward(losses(model, factor)(model.trunk(inputs())))
        found.append(model.gradients())
    heads = [name for name in found[0] if name.startswith("heads")]
    torch.testing.assert_close({n: found[1][n] for n in heads}, {n: 2 * found[0][n] for n in heads})
    ratio = found[1]["trunk.0.weight"].norm() / found[0]["trunk.0.weight"].norm()
    torch.testing.assert_close(ratio.item(), 2.0, rtol=1e-3, atol=0)


def test_hooks_are_still_there_after_an_error():
    def refuse(gradient):
        raise KeyError

    model = Model()
    balancer = UNIFORM.create(model.trunk, tasks=list("abc"))
    z = model.trunk(inputs())
    output = model.heads["b"](z)
    for tensor in (z, model.heads["a"].weight):
        tensor.register_hook(doubled)
    output.register_hook(refuse)
    with pytest.raises(KeyError):
        balancer.backward({**model.losses(z), "b": output.mean()})
    assert [*z._backward_hooks.values()] == [*model.heads["a"].weight._backward_hooks.values()] == [doubled]
    assert all(parameter.grad is None for parameter in model.parameters())


# ------------------------------------------------------------------ numbers


def _steep_head(model, height):
    """Head b has a weight that cancels out in its output and not in its gradient at z."""
    with torch.no_grad():
        model.trunk[0].weight.fill_(0.1)
        model.trunk[0].bias.zero_()
        model.heads["b"].weight.fill_(height)
        model.heads["b"].weight[:, WIDTH // 2 :] = -height
        model.heads["b"].bias.zero_()


@pytest.mark.parametrize(
    ("dtype", "height", "slope"), [(torch.float32, 1e25, 1e15), (torch.float16, 300.0, 3000.0)], ids=str
)
@each_method
def test_a_gradient_that_overflows_at_the_representation_is_left_out(method, dtype, height, slope):
    model = Model().to(dtype)
    _steep_head(model, height)
    balancer = method.create(model.trunk, tasks=list("abc"))
    z = model.trunk(inputs().to(dtype))
    step = balancer.backward({**model.losses(z), "b": (model.heads["b"](z).float() * slope).sum()})
    assert step.skipped == ("b",)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("method", [ROBUST, PAPER_Z], ids=str)
def test_an_unlabelled_sample_that_is_not_finite_leaves_no_mark_on_the_state(method):
    model = Model()
    balancer = method.create(model.trunk, tasks=list("abc"))
    x = inputs()
    x[2] = torch.nan
    labelled = ~x.isnan().any(1)
    balancer.backward(model.losses(model.trunk(x)[labelled]), mask=dict.fromkeys("abc", labelled))
    assert balancer.weights.isfinite().all()
    assert all(value.isfinite().all() for value in balancer.state.values() if value.is_floating_point())


@pytest.mark.parametrize("method", [ROBUST, PAPER_Z], ids=str)
def test_a_representation_overwritten_between_micro_batches_is_noticed(method):
    model = Model()
    balancer = method.create(model.trunk, tasks=list("abc"))
    z = model.trunk(inputs())
    balancer.backward(model.losses(z), accumulate=True)
    with torch.no_grad():
        z.zero_()
    with pytest.raises(ValueError, match="changed in place"):
        balancer.backward(model.losses(model.trunk(inputs())))


@pytest.mark.filterwarnings("ignore:the representation has 0 sample")
@pytest.mark.filterwarnings("ignore:every task of a step was left out")
@each_method
def test_an_empty_batch_is_left_out(method):
    model = Model()
    balancer = method.create(model.trunk, tasks=list("abc"))
    step = balancer.backward(model.losses(model.trunk(inputs()[:0])))
    assert step.skipped == ("a", "b", "c")
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


# ------------------------------------------------------------------ graphs


def _stem_around_the_trunk(model):
    """A stem outside `shared`, which task b sees through the representation and around it."""
    model.stem, model.skip = nn.Linear(FEATURES, FEATURES).to(DEVICE), nn.Linear(FEATURES, 1).to(DEVICE)
    h = model.stem(inputs())
    z = model.trunk(h)
    losses = model.losses(z)
    return {**losses, "b": losses["b"] + model.skip(h).square().mean()}, z, h


@pytest.mark.parametrize("method", [UNIFORM, ROBUST], ids=str)
def test_a_leaf_below_the_representation_that_is_seen_around_it_is_refused(method):
    model = Model()
    balancer = method.create(model.trunk, tasks=list("abc"))
    losses, _, _ = _stem_around_the_trunk(model)
    with pytest.raises(ValueError, match=r"task 'b' reaches a tensor of shape \(6.*around it; pass at="):
        balancer.backward(losses)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("method", [UNIFORM, ROBUST], ids=str)
def test_it_is_right_when_all_of_the_representation_is_given(method):
    model = Model()
    balancer = method.create(model.trunk, tasks=list("abc"), heads="weighted")
    losses, z, h = _stem_around_the_trunk(model)
    wanted = [torch.autograd.grad(loss, model.stem.weight, retain_graph=True)[0] for loss in losses.values()]
    step = balancer.backward(losses, at=(z, h))
    torch.testing.assert_close(model.stem.weight.grad, torch.einsum("m,mij->ij", step.weights, torch.stack(wanted)))


class Tripled(torch.autograd.Function):
    """Works on the gradient it is given, in its memory."""

    @staticmethod
    def forward(ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.mul_(3)


@each_method
def test_a_loss_that_ends_in_a_function_which_overwrites_its_gradient(method):
    for _ in range(2):  # and the next step finds nothing changed
        model = Model()

        def ending(z, model=model):
            return {task: Tripled.apply(loss) if task == "a" else loss for task, loss in model.losses(z).items()}

        _, plain = taken(method, model, heads="unweighted")
        model.zero_grad()
        _, found = taken(method, model, losses=ending, heads="unweighted")
        for name, _ in model.heads.named_parameters():
            factor = 3 if name.startswith("a") else 1
            torch.testing.assert_close(found[f"heads.{name}"], factor * plain[f"heads.{name}"])
