"""Several tasks in one backward pass through the trunk give what a pass per task gives, or take a pass per task.

And which options of engines are refused.
"""

import copy
import gc
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from choices import PAPER, UNIFORM, Method, trunk_of
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.gradients.one_pass import Fastest
from excessmtl.gradients.through_trunk import Trunk, even_parts, graph_below
from excessmtl.graph.representation import given
from excessmtl.recording.recorded import Recorded
from models import DEVICE
from steps import assert_same

TASKS = list("abcde")
BATCH = 4


class FusedAttention(nn.Module):
    """An operator that torch loops over, with a warning."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 24)

    def forward(self, x):
        return F.scaled_dot_product_attention(*self.layer(x)[:, None].chunk(3, -1))[:, 0]


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(8, 6, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Lookup(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.table, self.layer = nn.Embedding(10, 6, sparse=sparse), nn.Linear(6, 8)

    def forward(self, x):
        return self.layer(self.table(x)).tanh()


class Checkpointed(nn.Module):
    def __init__(self, dropout=0.0, **options):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(dropout))
        self.second, self.options = nn.Linear(8, 8), options

    def forward(self, x):
        return self.second(checkpoint(self.first, x, **self.options))


class Applied(nn.Module):
    """Something done to a tensor in the middle of the trunk."""

    def __init__(self, what):
        super().__init__()
        self.first, self.second, self.what = nn.Linear(8, 8), nn.Linear(8, 8), what

    def forward(self, x):
        return self.second(self.what(self.first(x)))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


class SquareByValue(Square):
    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient * (1 if gradient.abs().sum() >= 0 else 0)


def hooked(hook):
    def apply(h):
        if h.requires_grad:
            h.register_hook(hook)
        return h

    return apply


def perceptron():
    return nn.Sequential(nn.Linear(8, 9), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(9, 7), nn.GELU())


def convolutions():
    first = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    second = [nn.Conv2d(4, 6, 3, groups=2), nn.GroupNorm(2, 6), nn.Upsample(scale_factor=2, mode="bilinear")]
    return nn.Sequential(*first, *second, nn.ConvTranspose2d(6, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


vectors = partial(torch.randn, BATCH, 8, device=DEVICE)
images = partial(torch.randn, BATCH, 3, 12, 12, device=DEVICE)
sequences = partial(torch.randn, BATCH, 5, 8, device=DEVICE)
indices = partial(torch.randint, 10, (BATCH,), device=DEVICE)

TOGETHER = {
    "perceptron": (perceptron, vectors),
    "normalised": (lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Softmax(-1), nn.PReLU()), vectors),
    "convolutions": (convolutions, images),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), sequences),
    "fused_attention": (FusedAttention, sequences),
    "gru": (lambda: Recurrent(nn.GRU), sequences),
    "lstm": (lambda: Recurrent(nn.LSTM), sequences),
    "embedding": (lambda: Lookup(sparse=False), indices),
    "checkpoint": (lambda: Checkpointed(use_reentrant=False), vectors),
    "function": (lambda: Applied(Square.apply), vectors),
    "hook": (lambda: Applied(hooked(lambda g: g / g.norm())), vectors),
    "hook_in_place": (lambda: Applied(hooked(lambda g: g.mul_(2))), vectors),
    "hook_by_shape": (lambda: Applied(hooked(lambda g: g * g.shape[0])), vectors),
    "one_number_out": (lambda: nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)), vectors),
    "a_number_as_parameter": (lambda: Scaled(), vectors),
}
ONE_BY_ONE = {
    "sparse_embedding": (lambda: Lookup(sparse=True), indices),
    "checkpoint_dropout": (lambda: Checkpointed(0.5, use_reentrant=False), vectors),
    "function_by_value": (lambda: Applied(SquareByValue.apply), vectors),
    "hook_by_value": (lambda: Applied(hooked(lambda g: g * (2 if g.norm() > 0 else 1))), vectors),
}


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.unused = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.factor


class Head(nn.Linear):
    def forward(self, z):
        return super().forward(z.reshape(BATCH, -1))


def together(balancer):
    """Whether the trunk has been passed for several tasks at once."""
    trunk = trunk_of(balancer)
    return trunk.vmap_works and bool(trunk.known)


def model_of(trunk, inputs):
    torch.manual_seed(1)
    trunk = trunk().to(DEVICE)
    with torch.no_grad():
        z = trunk(inputs())
    heads = {task: Head(z.numel() // BATCH, i % 3 + 1) for i, task in enumerate(TASKS)}
    return nn.ModuleDict({"trunk": trunk, "heads": nn.ModuleDict(heads)}).to(DEVICE)


def losses_of(model, inputs, seed=0):
    torch.manual_seed(seed)
    z = model["trunk"](inputs())
    return {task: (head(z) - i).square().mean() for i, (task, head) in enumerate(model["heads"].items())}


def steps(model, inputs, method=PAPER, change=None, count=3, options=None, **arguments):
    """The gradients and weights of some steps, and the balancer after them."""
    balancer = method.create(model["trunk"], tasks=TASKS, **(options or {}))
    found = []
    for seed in range(count):
        losses = losses_of(model, inputs, seed)
        model.zero_grad()
        taken = balancer.backward(change(losses) if change else losses, **arguments)
        gradients = {n: p.grad.to_dense().clone() for n, p in model.named_parameters() if p.grad is not None}
        found.append({**gradients, "weights": taken.weights})
    return found, balancer


def compare(trunk, inputs, method=PAPER, change=None, counts=(2, 3, 5), rtol=1e-4, **arguments):
    model = model_of(trunk, inputs)
    wanted, plain = steps(copy.deepcopy(model), inputs, method, change, options={"tasks_at_once": 1}, **arguments)
    for at_once in counts:
        options = {"tasks_at_once": at_once}
        found, balancer = steps(copy.deepcopy(model), inputs, method, change, options=options, **arguments)
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol * 0.1)
        torch.testing.assert_close(balancer.state, plain.state, rtol=rtol, atol=rtol * 0.1)
        assert torch.equal(balancer.skipped, plain.skipped)
    return balancer


@pytest.mark.filterwarnings("ignore:RNN module weights")  # of a copied model, on CUDA
@pytest.mark.parametrize("trunk", TOGETHER)
def test_together(trunk):
    # On a GPU recurrent layers are one operator of cuDNN, which works for one task at a time.
    assert together(compare(*TOGETHER[trunk])) is not (DEVICE.type == "cuda" and trunk in ("gru", "lstm"))


@pytest.mark.parametrize("trunk", ONE_BY_ONE)
def test_what_cannot_be_walked_together_is_walked_one_by_one_and_nothing_of_the_try_is_left(trunk):
    assert not trunk_of(compare(*ONE_BY_ONE[trunk])).vmap_works

    def tensors():
        gc.collect()
        return sum(type(one) is torch.Tensor for one in gc.get_objects())

    gc.freeze()  # what is there before need not be looked at
    model, inputs = model_of(*ONE_BY_ONE[trunk]), ONE_BY_ONE[trunk][1]
    balancers = [PAPER.create(model["trunk"], tasks=TASKS, tasks_at_once=n) for n in (1, 5)]
    counts = []
    for balancer in balancers:
        before = tensors()
        balancer.backward(losses_of(model, inputs))
        model.zero_grad()
        counts.append(tensors() - before)
    gc.unfreeze()
    assert counts[1] <= counts[0]


def without(missing):
    return lambda losses: {task: None if task in missing else loss for task, loss in losses.items()}


def bad(losses):
    return {**losses, "b": losses["b"] * torch.nan, "d": losses["d"] * torch.inf}


def frozen():
    made = perceptron()
    made[0].weight.requires_grad_(False)
    return made


MASK = {"a": torch.tensor([True, False] * 2), "c": torch.zeros(BATCH, dtype=torch.bool)}
BATCHES = {
    # The trunk, and arguments of `compare`.
    **{f"without {missing}": ("perceptron", {"change": without(missing)}) for missing in ("b", "ac", "abcd", "e")},
    **{f"bad tasks, {trunk}": (trunk, {"change": bad}) for trunk in ("perceptron", "convolutions", "encoder")},
    "masks": ("perceptron", {"mask": MASK}),
    "a loss scale, which takes the plain way": ("perceptron", {"counts": (5,), "scaler": True}),
    "frozen parameters": (frozen, {}),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name):
    trunk, arguments = BATCHES[name]
    if "scaler" in arguments:
        arguments = {**arguments, "scaler": torch.amp.GradScaler(DEVICE.type, init_scale=128.0)}
    balancer = compare(*(TOGETHER[trunk] if isinstance(trunk, str) else (trunk, vectors)), **arguments)
    assert balancer.skipped.tolist() == ([0, 3, 0, 3, 0] if name.startswith("bad") else [0] * 5)
    assert together(balancer) is not ("scale" in name or "abcd" in name)  # the latter leaves a single task


def test_autocast():
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert together(compare(lambda: nn.Sequential(nn.Linear(8, 9), nn.ReLU()), vectors, rtol=0.02))


@pytest.mark.parametrize(("accumulators", "rtol"), [("fp32", 1e-5), ("bf16", 0.02)])
def test_a_frozen_parameter_keeps_its_accumulators_and_the_others_find_theirs(accumulators, rtol):
    model = model_of(perceptron, vectors)
    balancer = PAPER.create(model["trunk"], tasks=TASKS, accumulators=accumulators)
    balancer.backward(losses_of(model, vectors))
    before = balancer.state["squares"].clone()
    model["trunk"][0].weight.requires_grad_(False)
    losses = losses_of(model, vectors, 1)
    bias = torch.autograd.grad(losses["a"], model["trunk"][0].bias, retain_graph=True)[0]
    balancer.backward(losses)
    assert torch.equal(balancer.state["squares"][:, :72], before[:, :72])  # of the weight
    found = balancer.state["squares"][0, 72:81].float()
    torch.testing.assert_close(found, before[0, 72:81] + bias.square(), rtol=rtol, atol=1e-6)


def test_the_graph_is_freed_from_the_second_step_on():
    model = model_of(perceptron, vectors)
    balancer = PAPER.create(model["trunk"], tasks=TASKS, tasks_at_once=3)
    for seed in range(3):
        torch.manual_seed(seed)
        z = model["trunk"](vectors())
        balancer.backward({task: head(z).square().mean() for task, head in model["heads"].items()})
        if seed:
            with pytest.raises(RuntimeError, match="second time"):
                z.sum().backward()


def test_a_new_kind_of_graph_is_tried_first():
    applied = Applied(torch.tanh)
    model = model_of(lambda: applied, vectors)
    balancer = PAPER.create(model["trunk"], tasks=TASKS, tasks_at_once=5)
    balancer.backward(losses_of(model, vectors))
    model["trunk"].what = SquareByValue.apply  # as a model may that changes its ways
    for one in (balancer, PAPER.create(model["trunk"], tasks=TASKS, tasks_at_once=1)):
        model.zero_grad()
        one.backward(losses_of(model, vectors, 1))
        assert model["trunk"].first.weight.grad.abs().sum() > 0
    assert not trunk_of(balancer).vmap_works


@pytest.mark.parametrize(("at_once", "says_so"), [(5, True), (2, False)])
def test_a_hook_that_cannot_be_and_comes_late(at_once, says_so):
    model = model_of(lambda: Applied(lambda h: h.tanh()), vectors)
    balancer = PAPER.create(model["trunk"], tasks=TASKS, tasks_at_once=at_once)
    balancer.backward(losses_of(model, vectors))
    state = copy.deepcopy(balancer.state_dict())
    model["trunk"].what = lambda h: hooked(lambda g: g * (2 if g.norm() > 0 else 1))(h.tanh())
    model.zero_grad()
    if says_so:  # the only backward pass of the step, so it has freed the graph
        with pytest.raises(RuntimeError) as caught:
            balancer.backward(losses_of(model, vectors, 1))
        assert "tasks_at_once=1" in caught.value.__notes__[0]
        assert all(p.grad is None for p in model.parameters())
        assert_same(dict(balancer.state_dict()), dict(state))
    balancer.backward(losses_of(model, vectors, 1))
    assert not trunk_of(balancer).vmap_works


def test_warnings_of_the_user_are_shown():
    def warning(gradient):
        warnings.warn("mine", UserWarning, stacklevel=2)

    model = model_of(lambda: Applied(lambda h: h), vectors)
    model["trunk"].what = hooked(warning)
    balancer = PAPER.create(model["trunk"], tasks=TASKS, tasks_at_once=5)
    with pytest.warns(UserWarning, match="mine"):
        balancer.backward(losses_of(model, vectors))
    assert together(balancer)


def test_the_usual_number_of_tasks():
    usual, gpu = Trunk(None).usual, torch.device("meta")
    assert usual(torch.device("cpu"), 10**6, 40) == 1
    assert usual(gpu, 10**6, 40) == usual(gpu, 0, 2) == 14
    assert usual(gpu, 2**27, 4) == 4
    assert usual(gpu, 2**30, 4) == 1
    assert usual(gpu, 2**30, 8) == 8
    assert usual(gpu, 2**34, 40) == 1


def test_the_size_of_a_trunk_is_what_arrives_at_its_nodes():
    layer = nn.Linear(8, 9)
    z = layer(torch.randn(4, 8)).tanh()
    found = graph_below(given([z])(z.grad_fn, 0), {id(parameter) for parameter in layer.parameters()})
    assert found.entries == 4 * 9 + 4 * 9 + 8 * 9  # tanh, the product, the transposed weight
    assert graph_below(given([z])(z.grad_fn, 0), {id(layer.weight)}) is None, "a leaf that is not shared"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_in_the_trunk():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, parts):
            return torch.nested.to_padded_tensor(self.layer(torch.nested.nested_tensor(parts)), 0.0)

    trunk, head = Padded().to(DEVICE), nn.Linear(4, 2).to(DEVICE)
    balancer = PAPER.create(trunk, tasks=["a", "b"])
    first, second = head(trunk([torch.ones(2, 3, device=DEVICE), torch.ones(4, 3, device=DEVICE)]).mean(1)).unbind(1)
    balancer.backward({"a": first.mean(), "b": second.square().mean()})
    assert trunk.layer.weight.grad.isfinite().all()


def test_parts_are_few_and_even():
    assert [len(part) for part in even_parts(range(40), 8)] == [8] * 5
    assert [len(part) for part in even_parts(range(9), 8)] == [4, 5]
    assert [len(part) for part in even_parts(range(3), 8)] == [3]
    assert [task for part in even_parts([0, 2, 5, 7, 8], 2) for task in part] == [0, 2, 5, 7, 8]


MGDA_Z = Method("mgda", {"probe": "representation"})


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        *((PAPER, {"tasks_at_once": n}, "must be a whole number of tasks, at least 1") for n in (0, 2.0, "all")),
        *((one, {"tasks_at_once": 2}, "is not used by") for one in (UNIFORM, Method("gradnorm"), MGDA_Z)),
        (PAPER, {"engine": None}, "engine must be"),
        (PAPER, {"engine": AnyGraph}, "engine must be"),
        (PAPER, {"engine": "quick"}, "engine must be 'fast', 'reference' or an engine, found 'quick'"),
        (PAPER, {"engine": Recorded(), "record": False}, "record=False has no effect"),
        (PAPER, {"engine": Fastest(), "tasks_at_once": 2}, "tasks_at_once has no effect"),
        (PAPER, {"engine": "reference", "tasks_at_once": 2}, "is an option of engine='fast'"),
    ],
)
def test_an_option_without_sense_or_effect_is_refused(method, options, words):
    with pytest.raises(ValueError, match=words):
        method.create(nn.Linear(2, 2), **options)


def test_an_engine_that_has_the_option_is_taken():
    engine = Fastest()
    assert PAPER.create(nn.Linear(2, 2), engine=engine, record=False).engine is engine
    UNIFORM.create(nn.Linear(2, 2), engine="reference", record=True)  # without a warning
