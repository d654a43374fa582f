"""Graphs that a step must get right, or refuse with a sentence that says what to do."""

import gc

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from choices import GRADNORM, HOLDING, PAPER, ROBUST, UNIFORM, Method, each
from models import DEVICE, FEATURES, TASKS, WIDTH, MultiTask, batch, heads_on, losses_of
from steps import check_backward, gradients, started, trained

MGDA = Method("mgda")
FEW = [ROBUST, PAPER, UNIFORM, GRADNORM]


# ------------------------------------------------------------------ a leaf reached through z and around it


class Shift(nn.Module):
    """A layer whose backward needs nothing that the forward has saved, so that it can be taken twice unnoticed."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FEATURES, FEATURES))

    def forward(self, x):
        return x + self.weight.mean(0)


LAYERS = {"with saved tensors": lambda: nn.Linear(FEATURES, FEATURES), "with nothing saved": Shift}
each_layer = pytest.mark.parametrize(("layer", "scalar"), [*zip(LAYERS, (False, True), strict=True)])


class StemAround(nn.Module):
    """A stem outside `shared`: all tasks see it through z, and task `b` around it as well."""

    def __init__(self, layer):
        super().__init__()
        self.stem, self.trunk, self.skip = layer(), layer(), nn.Linear(FEATURES, 1)
        self.heads = nn.ModuleDict({task: nn.Linear(FEATURES, 1) for task in TASKS})

    def losses(self, x, around=True):
        h = self.stem(x)
        z = self.trunk(h)
        self.at = z, h
        losses = {task: head(z).square().mean() for task, head in self.heads.items()}
        return {**losses, "b": losses["b"] + self.skip(h).square().mean()} if around else losses


@pytest.mark.filterwarnings("ignore:.* parameters outside shared are reached by several tasks")
@pytest.mark.parametrize("before", ["b is missing", "no skip connection"])
@each_layer
@each("method", FEW)
def test_a_leaf_around_the_representation_is_looked_for_in_every_step(method, layer, before, scalar):
    """In the first steps the task that reaches it around z has no label, or does not go around it.

    Right where a method looks at all shared parameters: its gradients are taken leaf by leaf. Others refuse.
    """
    torch.manual_seed(4)
    model = StemAround(LAYERS[layer]).to(DEVICE)
    balancer = method.create(model.trunk)
    for _ in range(3):
        losses = model.losses(torch.randn(8, FEATURES, device=DEVICE), around=before == "b is missing")
        losses = {**losses, "b": None} if before == "b is missing" else losses
        check_backward(balancer, losses, model, model.trunk, scalar=scalar)
    losses = model.losses(torch.randn(8, FEATURES, device=DEVICE))
    if method in HOLDING:
        check_backward(balancer, losses, model, model.trunk, scalar=scalar)
    else:
        model.zero_grad()
        with pytest.raises(ValueError, match="both through the representation and around it; pass at="):
            (balancer if scalar else balancer.backward)(losses)
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore:.* parameters outside shared are reached by several tasks")
@each("method", [ROBUST, UNIFORM])
def test_a_leaf_around_the_representation_is_named_and_the_remedy_works(method):
    model = StemAround(LAYERS["with saved tensors"]).to(DEVICE)
    balancer = method.create(model.trunk)
    losses = model.losses(torch.randn(8, FEATURES, device=DEVICE))
    with pytest.raises(ValueError, match=r"task 'b' reaches a tensor of shape \(6.*around it"):
        balancer.backward(losses)
    check_backward(balancer, losses, model, model.trunk, at=model.at)


@pytest.mark.parametrize("missing", [0, 1])
def test_gradnorm_with_a_weight_that_one_task_reuses_in_one_of_two_micro_batches(missing):
    """Task `b` goes around z by a shared weight, and has labels in one micro-batch alone."""
    trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).to(DEVICE)
    head = nn.Linear(WIDTH, 1, device=DEVICE)
    x = torch.randn(2, 8, FEATURES, device=DEVICE)

    def losses(which):
        z = trunk(x[which])
        found = {"a": head(z).square().mean()}
        return found if missing in which else {**found, "b": (z @ trunk[2].weight).square().mean()}

    split, whole = (GRADNORM.create(trunk, ["a", "b"]) for _ in range(2))
    for _ in range(3):
        split.backward({task: loss / 2 for task, loss in losses([0]).items()}, accumulate=True)
        split.backward({task: loss / 2 for task, loss in losses([1]).items()})
        both = [losses([0]), losses([1])]
        whole.backward({task: sum(one[task] for one in both if task in one) / 2 for task in "ab"})
        assert torch.allclose(split.weights, whole.weights)
    assert split.weights[0] != split.weights[1]


# ------------------------------------------------------------------ one loss for two tasks


SAME = {
    "the first and the last": lambda losses: {**losses, "c": losses["a"]},
    "all": lambda losses: dict.fromkeys(losses, losses["a"]),
    "two, and one is missing": lambda losses: {"a": losses["a"], "b": losses["a"], "c": None},
    "outputs of one node, two of them the same": lambda losses: dict(
        zip("abc", torch.stack([*losses.values()])[[0, 1, 0]].unbind(), strict=True)
    ),
}


@pytest.mark.filterwarnings("ignore:.* parameters outside shared are reached by several tasks")
@pytest.mark.parametrize("same", SAME)
@each("method", FEW)
def test_one_loss_object_for_several_tasks(method, same):
    model, balancer = started(method)
    for scalar in (False, True):
        check_backward(balancer, SAME[same](model.losses()), model, model.trunk, scalar=scalar)


# ------------------------------------------------------------------ a reentrant checkpoint hides the parameters


def checkpointed(method, differentiable=True):
    """A model, its balancer and a batch; then the losses, and the representation from a reentrant checkpoint."""
    model, balancer = started(method)
    x, targets = batch()
    z = checkpoint(model.trunk, x.requires_grad_(differentiable), use_reentrant=True)
    return model, balancer, x, targets, heads_on(model, z, targets), z


@pytest.mark.parametrize("given", [True, False], ids=["at", "no at"])
@pytest.mark.parametrize("method", [MGDA, PAPER, GRADNORM], ids=str)
def test_what_is_said_of_a_reentrant_checkpoint(method, given):
    """The losses do reach the shared parameters; what is in the way is the checkpoint.

    A layer whose gradients are all taken for zero would leave every weight of GradNorm at one, silently.
    """
    *_, balancer, _, _, losses, z = checkpointed(method)
    with pytest.raises(ValueError, match="use_reentrant=False"):
        balancer.backward(losses, **({"at": z} if given else {}))


@pytest.mark.parametrize("method", [ROBUST, UNIFORM], ids=str)
def test_without_a_representation_a_reentrant_checkpoint_is_named_and_its_remedy_works(method):
    model, balancer, x, targets, losses, z = checkpointed(method)
    with pytest.raises(ValueError, match=r"checkpoint\(use_reentrant=True\) hides.*at=z.*use_reentrant=False"):
        balancer.backward(losses)
    step = balancer.backward(losses, at=z)
    again = losses_of(model(x), targets)
    total = sum(weight * loss for weight, loss in zip(step.weights, again.values(), strict=True))
    wanted = torch.autograd.grad(total, list(model.trunk.parameters()))
    torch.testing.assert_close([parameter.grad for parameter in model.trunk.parameters()], list(wanted))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("given", [True, False], ids=["at", "no at"])
def test_a_reentrant_checkpoint_of_inputs_without_a_gradient_is_named(given):
    """Torch returns what needs no gradient, so nothing in the graph shows the checkpoint."""
    *_, balancer, _, _, losses, z = checkpointed(ROBUST, differentiable=False)
    with pytest.raises(ValueError, match=r"checkpoint\(use_reentrant=True\)"):
        balancer.backward(losses, **({"at": z} if given else {}))


class Checkpointing(nn.Module):
    """A trunk that ends in a layer with a checkpoint inside it (`reentrant`: of which kind), or without one."""

    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(size, WIDTH) for size in (FEATURES, WIDTH, WIDTH))
        self.reentrant = reentrant

    def forward(self, x):
        hidden = self.first(x).tanh()
        if self.reentrant is None:
            return self.last(self.second(hidden).tanh())
        return self.last(checkpoint(self.second, hidden, use_reentrant=self.reentrant).tanh())


@pytest.mark.parametrize("reentrant", [False, True])
@each("method", [ROBUST, UNIFORM])
def test_checkpoints_inside_of_the_trunk_change_nothing(method, reentrant):
    computed = []
    for kind in (None, reentrant):
        torch.manual_seed(4)
        model = MultiTask(Checkpointing(kind)).to(DEVICE)
        computed.append(([step.numbers for step in trained(method.create(model.trunk), model, 3)], gradients(model)))
    torch.testing.assert_close(*computed, equal_nan=True)


# ------------------------------------------------------------------ TorchScript


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize(("way", "gone"), [("trace", False), ("trace", True), ("script", True)])
def test_torchscript(way, gone):
    """A module with a hook cannot be scripted, so its balancer has to go first; tracing needs nothing."""
    model, balancer = started(ROBUST)
    x, targets = batch()
    balancer.backward(losses_of(model(x), targets))
    if gone:
        del balancer
        gc.collect()
    whole = nn.Sequential(model.trunk, model.heads["a"])
    compiled = torch.jit.script(whole) if way == "script" else torch.jit.trace(whole, x)
    torch.testing.assert_close(compiled(x), whole(x))
