"""Any graph: what `backward` adds to `.grad` is what plain autograd gives for the weights in `step.weights`.

`GRAPHS` has the ways in which losses may depend on a trunk; each meets the methods, in both forms of a step.
`check_rule` compares the fast way with one backward pass per task for every method, test_random_graphs.py has models
and batches drawn at random.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import excessmtl
from choices import METHODS, PAPER, PAPER_Z, ROBUST, UNIFORM, both_forms
from models import BATCH, DEVICE, FEATURES, OUTPUTS, TASKS, WIDTH, MultiTask, batch, heads_on, losses_of, mlp
from steps import check_backward, gradients, started, take_step

FEW = (ROBUST, PAPER, UNIFORM)
a_few_methods = pytest.mark.parametrize("method", FEW, ids=str)


@dataclass(frozen=True)
class Graph:
    """A function from a model to losses, and what the model is made of."""

    losses: Callable
    trunk: Callable = lambda: None
    heads: Callable = lambda: None
    methods: Sequence = FEW

    def model(self):
        torch.manual_seed(1)
        return MultiTask(self.trunk(), self.heads()).to(DEVICE)


GRAPHS = {}


def graph(*parts, methods=FEW):
    """Register a function as the losses of a graph."""

    def add(losses):
        GRAPHS[losses.__name__] = Graph(losses, *parts, methods=methods)
        return losses

    return add


def linear_heads(features):
    return lambda: {task: nn.Linear(features, OUTPUTS[task]) for task in TASKS}


@graph(methods=METHODS)
def one_batch(model):
    return model.losses()


@graph()
def own_inputs(model):
    losses = {}
    for size, task in zip((4, 7, 5), TASKS, strict=True):
        x, targets = batch(size)
        losses[task] = mse_loss(model.heads[task](model.trunk(x)), targets[task])
    return losses


@graph(methods=METHODS)
def a_loss_vector_computed_once_and_unbound(model):
    """Each loss reaches every head, with a zero gradient."""
    x, targets = batch()
    outputs, targets = (torch.cat([parts[task] for task in TASKS], 1) for parts in (model(x), targets))
    errors = (outputs - targets).square().mean(0)
    return dict(zip(TASKS, torch.stack([errors[:3].mean(), errors[3], errors[4:].mean()]).unbind(), strict=True))


class Tripled(torch.autograd.Function):
    """Works on the gradient it is given, in its memory."""

    @staticmethod
    def forward(ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.mul_(3)


@graph(methods=METHODS)
def a_loss_that_ends_in_a_function_which_overwrites_its_gradient(model):
    losses = one_batch(model)
    return {**losses, "a": Tripled.apply(losses["a"])}


@graph()
def nodes_shared_above_the_representation(model):
    x, targets = batch()
    return heads_on(model, (model.trunk(x) * 1.5).exp().clamp(max=3), targets)


@graph()
def a_loss_that_is_part_of_another(model):
    losses = one_batch(model)
    return {**losses, "c": losses["c"] + 0.1 * losses["b"]}


def heads_of_several_shapes():
    return {
        "a": nn.Conv2d(12, 5, 1),
        "b": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)),
        "c": nn.Sequential(nn.Flatten(), nn.Linear(12 * 36, 8), nn.ReLU(), nn.Linear(8, 1)),
    }


@graph(
    lambda: nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU()),
    heads_of_several_shapes,
    methods=METHODS,
)
def heads_of_any_shape_and_batch_norm(model):
    outputs = model(torch.randn(4, 3, 6, 6, device=DEVICE))
    return {
        "a": cross_entropy(outputs["a"], torch.randint(5, (4, 6, 6), device=DEVICE)),
        "b": cross_entropy(outputs["b"], torch.randint(4, (4,), device=DEVICE)),
        "c": outputs["c"].square().mean(),
    }


class Branches(nn.Module):
    """Two outputs, one computed from the other as in every feature pyramid, and a layer that nobody uses."""

    def __init__(self):
        super().__init__()
        self.common, self.left = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.right, self.nobody = nn.Linear(WIDTH, WIDTH), nn.Linear(3, 3)

    def forward(self, x):
        left = self.left(self.common(x).tanh()).tanh()
        return left, self.right(left).tanh()


@graph(Branches, methods=METHODS)
def a_representation_computed_from_another_and_a_layer_that_nobody_uses(model):
    x, targets = batch()
    left, right = model.trunk(x)
    heads = model.heads
    return losses_of({"a": heads["a"](left), "b": heads["b"](right), "c": heads["c"](left + right)}, targets)


@graph(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()))
def a_recurrent_trunk_whose_every_output_is_used(model):
    first = model.trunk(torch.randn(BATCH, WIDTH, device=DEVICE))
    return heads_on(model, first + model.trunk(first), batch()[1])


@graph(lambda: nn.LSTM(FEATURES, WIDTH, batch_first=True))
def sequence_outputs_of_an_lstm(model):
    output, _ = model.trunk(torch.randn(BATCH, 5, FEATURES, device=DEVICE))
    inputs = {"a": output, "b": output[:, -1], "c": output.mean(1)}
    return {task: model.heads[task](z).square().mean() for task, z in inputs.items()}


@graph(lambda: nn.Sequential(nn.Embedding(11, WIDTH, sparse=True), nn.Tanh()))
def sparse_embeddings(model):
    tokens = torch.randint(11, (BATCH, 4), device=DEVICE)
    return {task: output.square().mean() for task, output in model(tokens).items()}


@graph(lambda: None, lambda: {**linear_heads(WIDTH)(), "a": nn.Embedding(7, 3, sparse=True)})
def a_head_with_sparse_embeddings(model):
    x, _ = batch()
    z, rows = model.trunk(x), model.heads["a"](torch.tensor([1, 2, 2], device=DEVICE))
    return {"a": z.mean() + rows.square().mean(), **{task: model.heads[task](z).square().mean() for task in "bc"}}


@graph()
def a_task_that_does_not_see_the_representation(model):
    return {**one_batch(model), "b": model.heads["b"].weight.square().mean()}


@graph()
def a_forward_for_validation_between_forward_and_backward(model):
    losses = one_batch(model)
    one_batch(model)
    with torch.no_grad():
        one_batch(model)
    return losses


@graph()
def losses_of_one_element(model):
    return {task: loss.reshape(1, 1) for task, loss in one_batch(model).items()}


GRAPHS["a_representation_wider_than_the_sketch"] = Graph(
    one_batch, lambda: nn.Sequential(nn.Linear(FEATURES, 100), nn.Tanh()), linear_heads(100)
)


def on_flattened_outputs(model):
    x, targets = batch()
    return heads_on(model, model.trunk(x).reshape(BATCH, -1), targets)


for shape in ((), (5, WIDTH), (4, 3, 3), (2, 3, 2, 2)):
    size, last = torch.Size(shape).numel(), nn.Unflatten(1, shape) if shape else nn.Flatten(0)
    GRAPHS[f"representations of shape {shape}"] = Graph(
        on_flattened_outputs,
        lambda size=size, last=last: nn.Sequential(nn.Linear(FEATURES, size), nn.Tanh(), last),
        linear_heads(size),
    )


@pytest.mark.filterwarnings("ignore:.* parameters outside shared are reached by several tasks")
@pytest.mark.parametrize(("name", "method"), [(name, m) for name in GRAPHS for m in GRAPHS[name].methods], ids=str)
def test_the_step_is_the_weighted_sum_of_plain_gradients(name, method):
    model = GRAPHS[name].model()
    balancer = method.create(model.trunk)
    for scalar in (False, True, False):
        losses = GRAPHS[name].losses(model)
        random = torch.get_rng_state()
        check_backward(balancer, losses, model, model.trunk, scalar=scalar)
        assert torch.equal(random, torch.get_rng_state())
    counts = [buffer for buffer in model.buffers() if buffer.dtype == torch.int64]
    assert all(int(count) == 3 for count in counts), "batch norm saw one forward per step"


@pytest.mark.parametrize("where", ["low", "bias alone"])
def test_gradnorm_sees_its_layer(where):
    """Also below several representations, and where a part of the layer is frozen."""
    computed = []
    for first in (True, False):
        torch.manual_seed(1)
        model = MultiTask(Branches()).to(DEVICE)
        layer, shared = model.trunk.common, model.trunk
        if where == "low":
            shared = shared if first else list(shared.parameters())
        else:
            layer.weight.requires_grad_(False)
            layer = layer if first else layer.bias
        balancer = excessmtl.create("gradnorm", tasks=TASKS, shared=shared, layer=layer)
        x, targets = batch()
        losses = heads_on(model, sum(model.trunk(x)), targets)
        balancer.backward({task: 3**i * loss for i, (task, loss) in enumerate(losses.items())})
        computed.append(balancer.state["weights"])  # for the next step
    assert computed[0].std() > 0.001
    torch.testing.assert_close(*computed)
    if where != "low":
        with pytest.raises(ValueError, match="layer has no parameter that wants a gradient"):
            excessmtl.create("gradnorm", tasks=TASKS, shared=model.trunk, layer=model.trunk.common.weight)


# ------------------------------------------------------------------ complex numbers, in-place changes


class Complex(nn.Module):
    """The size of a complex product."""

    def __init__(self, features, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, features, dtype=torch.complex64))

    def forward(self, z):
        return (z.to(self.weight.dtype) @ self.weight.T).abs()


@a_few_methods
def test_complex_heads(method):
    model = MultiTask(heads={task: Complex(WIDTH, outputs) for task, outputs in OUTPUTS.items()}).to(DEVICE)
    balancer, losses = method.create(model.trunk), one_batch(model)
    parameters = [head.weight for head in model.heads.values()]
    plain = torch.autograd.grad(list(losses.values()), parameters, retain_graph=True)
    step = balancer.backward(losses)
    multipliers = torch.ones_like(step.weights) if balancer.heads == "unweighted" else step.weights
    for parameter, gradient, multiplier in zip(parameters, plain, multipliers, strict=True):
        torch.testing.assert_close(parameter.grad, gradient * multiplier)


def test_complex_shared_parameters_are_refused_where_their_gradients_are_looked_at():
    model = MultiTask(nn.Sequential(Complex(FEATURES, WIDTH), nn.Tanh())).to(DEVICE)
    with pytest.raises(ValueError, match="complex"):
        PAPER.create(model.trunk)
    assert ROBUST.create(model.trunk).backward(one_batch(model)).skipped == ()
    assert torch.view_as_real(model.trunk[0].weight.grad).abs().sum((0, 1)).gt(0).all()


@pytest.mark.parametrize("change", ["relu_", "neg_"])
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
@a_few_methods
def test_in_place_change_of_the_representation(method, alive, change):
    model = MultiTask(nn.Linear(FEATURES, WIDTH)).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = model.trunk(x)
    getattr(z, change)()
    losses = heads_on(model, z, targets)
    if not alive:
        del z
    if balancer.rule.per_sample:  # it needs the values that were overwritten, and says so
        before = copy.deepcopy(balancer.state_dict())
        with pytest.raises(ValueError, match="changed in place"):
            balancer.backward(losses)
        torch.testing.assert_close(balancer.state_dict(), before, rtol=0, atol=0)
        return
    check_backward(balancer, losses, model, model.trunk, scalar=not alive)


@pytest.mark.parametrize("method", [ROBUST, PAPER_Z], ids=str)
def test_a_representation_overwritten_between_micro_batches_is_noticed(method):
    model, balancer = started(method)
    x, targets = batch()
    z = model.trunk(x)
    balancer.backward(heads_on(model, z, targets), accumulate=True)
    with torch.no_grad():
        z.zero_()
    with pytest.raises(ValueError, match="changed in place"):
        balancer.backward(losses_of(model(x), targets))


def test_an_in_place_change_that_is_told_of_does_not_falsify_the_statistics():
    states = []
    for in_place in (True, False):
        torch.manual_seed(1)
        model = MultiTask(nn.Linear(FEATURES, WIDTH)).to(DEVICE)
        balancer = ROBUST.create(model.trunk)
        x, targets = batch()
        z = model.trunk(x).mul_(3.0) if in_place else model.trunk(x) * 3.0
        balancer.backward(heads_on(model, z, targets), at=z)
        states.append(balancer.state["signal"])
    torch.testing.assert_close(*states)


# ------------------------------------------------------------------ what a step adds to, and what it lets go


@both_forms
@a_few_methods
def test_called_under_no_grad(method, scalar):
    computed = []
    for gradient in (True, False):
        torch.manual_seed(1)
        model, balancer = started(method)
        losses = one_batch(model)
        with torch.set_grad_enabled(gradient):
            take_step(balancer, losses, scalar)
        computed.append(gradients(model))
    torch.testing.assert_close(*computed, rtol=0, atol=0)


@a_few_methods
def test_adds_to_what_is_there_and_to_inputs(method):
    model, x = mlp(), batch()[0].requires_grad_()
    targets, twin = batch()[1], copy.deepcopy(model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    kept = [p.grad for p in model.parameters()]
    step = method.create(model.trunk).backward(losses_of(model(x), targets))
    method.create(twin.trunk).backward(losses_of(twin(x.detach()), targets))
    for one, other, old in zip(model.parameters(), twin.parameters(), kept, strict=True):
        torch.testing.assert_close(one.grad, 1 + other.grad)
        assert one.grad is old
    again = losses_of(model(x), targets)
    (wanted,) = torch.autograd.grad(sum(w * again[t] for t, w in zip(TASKS, step.weights, strict=True)), x)
    torch.testing.assert_close(x.grad, wanted)


@pytest.mark.parametrize("method", [PAPER, UNIFORM], ids=str)
def test_gradients_share_no_memory_and_can_be_added_to(method):
    """Two parameters that are added get one and the same gradient from autograd; in-place clipping must not see it."""
    one, two, other = (nn.Parameter(torch.randn(4, 5, device=DEVICE)) for _ in range(3))
    balancer = method.create([one, two], tasks=["a", "b"])
    for _ in range(2):
        z = one + two
        balancer.backward({"a": z.sum() + other.sum(), "b": z.square().sum()})
        assert one.grad.data_ptr() != two.grad.data_ptr()
    one.grad.mul_(0)
    other.grad.mul_(2)  # autograd's own gradient of a sum is expanded, and could not be
    assert two.grad.abs().sum() > 0


@pytest.mark.parametrize("losses_of_model", [one_batch, own_inputs], ids=lambda losses: losses.__name__)
@pytest.mark.parametrize(("method", "shared"), [*((m, "module") for m in FEW), (PAPER, "list")], ids=str)
def test_the_graph_is_freed(method, shared, losses_of_model):
    """As `loss.backward()` does: a loop that keeps `losses` alive must not keep the activations.

    Not so for methods that read losses only and know no representation: their one backward keeps the graph, to find
    the task at fault when something in it is not finite (`gradients/losses_only.py`).
    """
    model = mlp()
    balancer = method.create(list(model.trunk.parameters()) if shared == "list" else model.trunk)
    losses = losses_of_model(model)
    balancer.backward(losses)
    for loss in losses.values():
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


@a_few_methods
def test_another_default_device(method):
    """With `torch.set_default_device` somewhere else, nothing of ours may land there."""
    model, balancer = started(method, **({"seed": 987} if method is ROBUST else {}))
    losses = one_batch(model)
    with torch.device("meta"):
        step = balancer.backward(losses)
    assert step.weights.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("upper_first", [False, True])
def test_sketch_of_a_task_does_not_depend_on_the_others(upper_first):
    """`b` reads two tensors, `a` one of them: what is remembered of `b` is the same with and without `a`."""
    model = MultiTask(Branches()).to(DEVICE)
    x, targets = batch()
    states = []
    for present in (True, False):
        balancer = ROBUST.create(model.trunk)
        low, high = model.trunk(x)
        parts = [mse_loss(model.heads["b"](low), targets["b"]), model.heads["b"](high).mean()]
        losses = {"b": parts[1] + parts[0] if upper_first else parts[0] + parts[1]}
        if present:
            losses["a"] = mse_loss(model.heads["a"](low), targets["a"])
        balancer.backward(losses)
        states.append(balancer.state["signal"][1])
    torch.testing.assert_close(*states)
