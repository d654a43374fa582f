"""Every fast way to the gradients gives what the plain one gives: .grad, weights and state, step by step."""

import copy

import pytest
import torch
from torch import nn

from choices import ENGINES, PAPER, ROBUST, UNIFORM, Method, Noting
from excessmtl.gradients.at_representation import weighted_sum
from models import DEVICE, mlp

FEATURES, WIDTH, BATCH = 6, 48, 8
"""Wider than the sketch, so that there is something to project."""
METHODS = [UNIFORM, ROBUST, PAPER, Method("mgda", {"probe": "representation"}), Method("graddrop")]
"""One for each thing that a rule can ask these ways for."""
each_method = pytest.mark.parametrize("method", METHODS, ids=str)


class Twice(nn.Module):
    """A head that takes z in two places."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 1)

    def forward(self, z):
        return self.layer(z) + (z * z).mean(1, keepdim=True)


class Looking(nn.Module):
    """A head with a sparse gradient of its own."""

    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 1, sparse=True), nn.Linear(WIDTH, 1)

    def forward(self, z):
        return self.layer(z) + self.table(torch.arange(len(z), device=z.device) % 5)


class Tied(nn.Linear):
    """A layer whose parameters serve once more: `what` of them."""

    def __init__(self, what):
        super().__init__(WIDTH, 2)
        self.what = what

    def forward(self, z):
        output = super().forward(z)
        if self.what == "transposed":  # one node above the weight for both
            turned = self.weight.t()
            return torch.addmm(self.bias, z, turned) + turned.square().sum()
        return output + getattr(self, self.what).square().sum()


class Product(nn.Linear):
    """`torch.addmm` with factors, and with a bias of the shape that is asked for."""

    def __init__(self, shape=(2,), **factors):
        super().__init__(WIDTH, 2)
        self.bias, self.factors = nn.Parameter(torch.ones(shape)), factors

    def forward(self, z):
        return torch.addmm(self.bias, z, self.weight.t(), **self.factors)


class _NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


class Unreached(nn.Linear):
    """A layer at whose output no gradient arrives."""

    def forward(self, z):
        return _NoGradient.apply(super().forward(z))


def linear(outputs=1, **options):
    return nn.Linear(WIDTH, outputs, **options)


def deep(outputs=1):
    return nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, outputs))


def dense():
    return nn.Sequential(nn.Conv2d(4, 3, 1), nn.Tanh(), nn.Flatten(), nn.LazyLinear(1))


def frozen_weight():
    head = linear()
    head.weight.requires_grad_(False)
    return head


def normalised():
    return nn.utils.parametrizations.weight_norm(linear(2))


HEADS = {
    "linear": [linear, linear, linear],
    "without_bias": [lambda: linear(bias=False)] * 3,
    "outputs_differ": [lambda: linear(1), lambda: linear(4), lambda: linear(2)],
    "many_outputs": [lambda: linear(100)] * 3,
    "deep": [deep, deep, lambda: deep(3)],
    "linear_and_deep": [linear, deep, linear],
    "twice": [linear, Twice, linear],
    "sparse": [linear, Looking, linear],
    "frozen_weight": [frozen_weight, linear, linear],
    "normalised": [normalised, linear, linear],
    "no_parameters": [nn.Identity, linear, linear],
    "some_without_bias": [linear, lambda: linear(bias=False), linear],
    "tied_weight": [linear, lambda: Tied("weight"), linear],
    "tied_bias": [linear, lambda: Tied("bias"), linear],
    "tied_transposed": [linear, lambda: Tied("transposed"), linear],
    "twice_the_product": [linear, lambda: Product(alpha=2), linear],
    "twice_the_bias": [linear, lambda: Product(beta=2), linear],
    "one_bias_for_all_outputs": [linear, lambda: Product((1,)), linear],
    "a_bias_per_sample": [linear, lambda: Product((BATCH, 2)), linear],
}

LINEAR = {"linear", "without_bias", "outputs_differ", "deep", "linear_and_deep", "sparse", "some_without_bias"}
"""Those that take z by linear layers which serve nothing else, and narrow ones."""


def model_of(heads, trunk=None):
    torch.manual_seed(1)
    trunk = trunk or nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
    return nn.ModuleDict({"trunk": trunk, "heads": nn.ModuleDict({t: h() for t, h in zip("abc", heads, strict=True)})})


def step(model, balancer, seed, change=None, shape=(BATCH, FEATURES), dtype=torch.float32, **arguments):
    torch.manual_seed(seed)
    z = model["trunk"](torch.randn(*shape, device=DEVICE, dtype=dtype))
    losses = {task: (head(z).flatten(1) - 0.5).square().mean() for task, head in model["heads"].items()}
    model.zero_grad()
    return balancer.backward(change(losses, z) if change else losses, **arguments)


def compare(method, model, changes=(None, None), rtol=1e-4, **arguments):
    """Every way gives the gradients, weights and state of the reference; whether linear heads were recognised."""
    found = {}
    for way, engine in ENGINES.items():
        twin = copy.deepcopy(model)
        balancer = method.create(twin["trunk"], tasks=list("abc"), engine=engine())
        found[way] = [take(twin, balancer, i, change, arguments) for i, change in enumerate(changes)], balancer
    recognised = found["linear heads"][1].engine.way == "LinearHeads"
    plain, reference = found.pop("reference")
    for steps, balancer in found.values():
        for mine, wanted in zip(steps, plain, strict=True):
            torch.testing.assert_close(mine, wanted, rtol=rtol, atol=rtol * 0.1)
        torch.testing.assert_close(balancer.state, reference.state, rtol=rtol, atol=rtol * 0.1)
        assert torch.equal(balancer.skipped, reference.skipped)
    return recognised


def take(model, balancer, seed, change, arguments):
    taken = step(model, balancer, seed, change, **arguments)
    found = {name: p.grad.to_dense().clone() for name, p in model.named_parameters() if p.grad is not None}
    return {**found, "weights": taken.weights, "losses": taken.losses.nan_to_num(-1)}


@pytest.mark.parametrize("heads", HEADS)
@each_method
def test_heads(method, heads):
    assert compare(method, model_of(HEADS[heads]).to(DEVICE)) == (heads in LINEAR)


def _without(*tasks):
    return lambda losses, z: {task: loss for task, loss in losses.items() if task not in tasks}


def _nan_loss(losses, z):
    return {**losses, "b": losses["b"] * torch.nan}


def _bad_gradient_at_z(losses, z):
    return {**losses, "b": losses["b"] + (z[:1, :1] * 0).sqrt().sum()}


MASK = {"a": torch.tensor([True, False] * 4), "c": torch.zeros(BATCH, dtype=torch.bool)}
BATCHES = {
    # Heads, and what `compare` takes.
    "sequences": ("outputs_differ", {"shape": (BATCH, 5, FEATURES)}),
    "missing tasks": ("outputs_differ", {"changes": [None, _without("b"), _without("a", "c"), _without("c"), None]}),
    "a NaN loss": ("linear", {"changes": [None, _nan_loss, None]}),
    "a bad gradient at z": ("linear", {"changes": [None, _bad_gradient_at_z, None]}),
    "masks": ("linear", {"mask": MASK}),
    "float64": ("linear", {"dtype": torch.float64}),
    "bfloat16": ("linear", {"dtype": torch.bfloat16, "rtol": 0.1}),
}


@pytest.mark.parametrize("name", BATCHES)
@each_method
def test_batches(method, name):
    heads, arguments = BATCHES[name]
    compare(method, model_of(HEADS[heads]).to(DEVICE, arguments.get("dtype")), **arguments)


@each_method
def test_maps(method):
    model = model_of([dense] * 3, nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    with torch.no_grad():
        z = model["trunk"](torch.zeros(2, 3, 7, 6))
        for head in model["heads"].values():
            head(z)
    compare(method, model.to(DEVICE), shape=(BATCH, 3, 7, 6))
    compare(method, model.to(memory_format=torch.channels_last), shape=(BATCH, 3, 7, 6))


class Root(nn.Module):
    """A head with a gradient of its own that is not finite."""

    def __init__(self):
        super().__init__()
        self.layer, self.offset = linear(), nn.Parameter(torch.zeros(()))

    def forward(self, z):
        return self.layer(z) + self.offset.sqrt()


@each_method
def test_a_bad_head(method):
    model = model_of([linear, Root, linear]).to(DEVICE)
    compare(method, model)
    assert step(model, method.create(model["trunk"], tasks=list("abc")), 0).skipped == ("b",)
    assert not model["heads"]["b"].offset.grad.isnan().any()
    model = model_of(HEADS["linear"]).to(DEVICE)
    with torch.no_grad():
        model["heads"]["b"].weight[0, 0] = torch.inf
    compare(method, model)


@pytest.mark.filterwarnings("ignore:every task of a step was left out")
@pytest.mark.parametrize("way", ENGINES)
@each_method
def test_a_sample_that_is_not_finite_and_has_no_label(method, way):
    """Its gradient is zero, and zero times NaN is NaN in the layer above it, though all losses are finite."""
    model = model_of(HEADS["linear"]).to(DEVICE)
    balancer = method.create(model["trunk"], tasks=list("abc"), engine=ENGINES[way]())
    x = torch.ones(BATCH, FEATURES, device=DEVICE).cumsum(0)
    x[0] = torch.nan
    z = model["trunk"](x)
    taken = balancer.backward({task: head(z)[1:].square().mean() for task, head in model["heads"].items()})
    assert taken.skipped == ("a", "b", "c")
    assert all(parameter.grad.count_nonzero() == 0 for parameter in model["heads"].parameters())


def started(method=UNIFORM, heads="linear", engine=None):
    """A model without an activation at the end of its trunk, its balancer, and the representation of a batch."""
    torch.manual_seed(1)
    model = model_of(HEADS[heads], nn.Linear(FEATURES, WIDTH)).to(DEVICE)
    balancer = method.create(model["trunk"], tasks=list("abc"), engine=engine or Noting())
    return model, balancer, model["trunk"](torch.ones(BATCH, FEATURES, device=DEVICE).cumsum(0))


def losses_at(model, z):
    return {task: head(z).square().mean() for task, head in model["heads"].items()}


def test_a_representation_changed_before_the_heads_saw_it():
    """Autograd knows the values that the heads saw; those that the trunk returned are others."""
    found = []
    for engine in ENGINES.values():
        model, balancer, z = started(engine=engine())
        with torch.no_grad():
            z.mul_(3)
        balancer.backward(losses_at(model, z))
        found.append([p.grad for p in model["heads"].parameters()])
    *fast, plain = found
    for gradients in fast:
        torch.testing.assert_close(gradients, plain)


@pytest.mark.parametrize(
    ("changed", "method", "heads"),
    [
        *(("z", UNIFORM, heads) for heads in ("linear", "without_bias", "twice")),
        *(("z at", UNIFORM, heads) for heads in ("linear", "without_bias", "twice")),
        *(("head", method, heads) for method in METHODS[:3] for heads in ("linear", "without_bias")),
    ],
    ids=str,
)
def test_what_is_changed_after_the_heads_were_applied_is_the_error_of_autograd_and_no_mixture(changed, method, heads):
    """As by a step of another optimiser between forward and backward."""
    model, balancer, z = started(method, heads)
    losses = losses_at(model, z)
    with torch.no_grad():
        (model["heads"]["a"].weight if changed == "head" else z).mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        balancer.backward(losses, at=z if changed == "z at" else None)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("method", METHODS[:3], ids=str)
def test_a_head_that_was_given_other_values_after_it_was_applied(method):
    """`.data` is swapped, as sharding and offloading do: autograd goes by the values that were applied."""
    found = []
    for factor in (1, 3):
        model, balancer, z = started(method)
        losses = losses_at(model, z)
        for head in model["heads"].values():
            head.weight.data = head.weight.data * factor
        balancer.backward(losses)
        found.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*found)


def test_a_leaf_at_which_no_gradient_arrives_has_none():
    model = model_of([linear, lambda: Unreached(WIDTH, 2), linear]).to(DEVICE)
    compare(UNIFORM, model)
    step(model, UNIFORM.create(model["trunk"], tasks=list("abc")), 0)
    assert [head.weight.grad is None for head in model["heads"].values()] == [False, True, False]


class Wide(nn.Module):
    """Returns fp32, as layer norm does under autocast on a GPU."""

    def forward(self, x):
        return x.float().tanh()


TRUNKS = {
    "fp32": lambda: nn.Sequential(nn.Linear(FEATURES, WIDTH), Wide()),
    "narrow": lambda: nn.Sequential(nn.Tanh(), nn.Linear(FEATURES, WIDTH)),
}
"""The type of the representation under autocast."""


@pytest.mark.parametrize("trunk", TRUNKS)
@pytest.mark.parametrize("heads", ["linear", "without_bias", "outputs_differ", "linear_and_deep", "tied_weight"])
@pytest.mark.parametrize(  # not GradDrop, whose gates turn on a last bit
    ("method", "dtype"), [*((method, torch.bfloat16) for method in METHODS[:-1]), (UNIFORM, torch.float16)], ids=str
)
def test_autocast(method, heads, trunk, dtype):
    """Factors of float16 would overflow unseen, so that heads are not taken for linear ones."""
    model = model_of(HEADS[heads], TRUNKS[trunk]()).to(DEVICE)
    with torch.autocast(DEVICE.type, dtype):
        recognised = compare(method, model, rtol=0.05)
    assert recognised == (heads in LINEAR and dtype is torch.bfloat16)


def doubled(tensor):
    tensor.register_hook(lambda gradient: 2 * gradient)
    return tensor


HOOKED = {
    "cast": lambda z, weight: torch.mm(doubled(z.double()), weight.double().t()),
    "cast of the weight": lambda z, weight: torch.mm(z.double(), doubled(weight.double()).t()),
    "transposed weight": lambda z, weight: torch.mm(z, doubled(weight.t())),
}


class By(nn.Linear):
    """A layer that is applied in a way of the test's."""

    def __init__(self, apply, dtype=torch.float32):
        super().__init__(WIDTH, 2, bias=False, dtype=dtype)
        self.apply_by = apply

    def forward(self, z):
        return self.apply_by(z, self.weight).float()


@pytest.mark.parametrize("hooked", HOOKED)
@pytest.mark.parametrize("method", METHODS[:3], ids=str)
def test_hooks_between_a_layer_and_its_leaves_act(method, hooked):
    compare(method, model_of([lambda: By(HOOKED[hooked]), linear, linear]).to(DEVICE))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("method", METHODS[:3], ids=str)
def test_leaves_of_half_precision_that_are_widened(method, dtype):
    """Small gradients, which float16 would lose."""
    heads = [lambda: By(lambda z, weight: 1e-2 * torch.mm(z, weight.float().t()), dtype)] * 3
    compare(method, model_of(heads).to(DEVICE), rtol=5e-3)


def test_half_precision_is_added_up_without_rounding_on_the_way():
    tensors = torch.rand(64, 100).bfloat16()
    assert torch.equal(weighted_sum(tensors.unbind(), torch.ones(64)), tensors.double().sum(0).bfloat16())


@pytest.mark.parametrize(("enabled", "way"), [(True, "any graph"), (False, "LinearHeads")])
def test_a_scaler_that_is_switched_off_does_not_cost_the_fast_way(enabled, way):
    model = mlp()
    balancer = ROBUST.create(model.trunk, engine=Noting())
    balancer.backward(model.losses(), scaler=torch.amp.GradScaler(DEVICE.type, enabled=enabled))
    assert balancer.engine.way == way
