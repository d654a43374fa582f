"""A representation that is not what it should be, and other mistakes: a clear error, and nothing has changed."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import excessmtl
from choices import GRADNORM, PAPER, PAPER_Z, ROBUST, UNIFORM, needs_z
from models import BATCH, DEVICE, FEATURES, OUTPUTS, TASKS, WIDTH, MultiTask, batch, heads_on, losses_of
from steps import check_backward, refused, started, trained

each_method = pytest.mark.parametrize("method", [ROBUST, PAPER, PAPER_Z, UNIFORM, GRADNORM], ids=str)


def after_two_steps(method):
    """A model with something in `.grad`, and a new batch."""
    model, balancer = started(method)
    trained(balancer, model, 2)
    return model, balancer, *batch()


class Skipping(MultiTask):
    """The head of `b` also sees a layer inside the trunk."""

    def __init__(self):
        super().__init__(nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)))

    def forward(self, x):
        inner = self.trunk[:2](x)
        z = self.trunk(x)
        outputs = {task: self.heads[task](z) for task in TASKS}
        outputs["b"] = outputs["b"] + self.heads["b"](inner)
        self.z, self.inner = z, inner
        return outputs


@each_method
def test_a_skip_connection(method):
    model = Skipping().to(DEVICE)
    balancer = method.create(model.trunk)
    losses = model.losses()
    for form in ("backward", "forward"):
        assert "tuple" in refused(balancer, model, losses, "'b'.*around", form, at=model.z)
    if needs_z(method):
        assert "at=" in refused(balancer, model, losses, "'b'.*around")
        check_backward(balancer, losses, model, model.trunk, at=(model.z, model.inner))
    else:
        check_backward(balancer, losses, model, model.trunk)


@pytest.mark.parametrize("what", ["a single number", "complex"])
@each_method
def test_a_representation_that_nobody_can_look_at(method, what):
    model, balancer = started(method)
    z = model.trunk(batch()[0])
    z = z.mean() if what == "a single number" else torch.complex(z, z)
    losses = {task: (z.abs() * head.bias).square().mean() for task, head in model.heads.items() if task == "b"}
    if needs_z(method):
        refused(balancer, model, losses, what, at=z)
    else:
        check_backward(balancer, losses, model, model.trunk, at=z)


@each_method
def test_parameters_outside_shared_that_several_tasks_reach(method):
    model = MultiTask(heads={task: nn.Linear(5, OUTPUTS[task]) for task in TASKS})
    model.neck = nn.Linear(WIDTH, 5)
    model = model.to(DEVICE)
    balancer = method.create(model.trunk)
    for attempt in range(3):
        x, targets = batch()
        losses = heads_on(model, model.neck(model.trunk(x)), targets)
        with nullcontext() if attempt else pytest.warns(UserWarning, match=r"2 parameters outside shared.*\(5, 16\)"):
            check_backward(balancer, losses, model, model.trunk)


@pytest.mark.parametrize("form", ["backward", "forward"])
def test_losses_that_are_none(form):
    model, balancer, x, targets = after_two_steps(ROBUST)
    losses = losses_of(model(x), targets)
    with torch.no_grad():
        blind = losses_of(model(x), targets)
    for wrong, match in (
        ({**losses, "d": losses["a"]}, "unknown task 'd'"),
        ({}, "no task"),
        (dict.fromkeys(TASKS), "no task"),
        (list(losses.values()), "losses must be a dict"),
        (sum(losses.values()), "losses must be a dict"),
        (None, "losses must be a dict"),
        ({**losses, "b": losses["b"] * 1j}, r"losses\['b'\] must be real"),
        ({**losses, "b": losses["b"].item()}, r"losses\['b'\] must be a scalar tensor"),
        ({**losses, "b": model(x)["b"]}, r"losses\['b'\].*reduce it"),
        ({**losses, "b": torch.zeros(0, device=DEVICE)}, r"losses\['b'\]"),
        ({**losses, "b": losses["b"].detach()}, r"losses\['b'\] has no graph"),
        (blind, r"losses\['a'\] has no graph"),
    ):
        refused(balancer, model, wrong, match, form)
    balancer.backward(losses)


WRONG = [
    # `at`, or a mask.
    ("at", lambda model, x: model.trunk(x).detach(), "detached"),
    ("at", lambda model, x: model.trunk(x), "at does not hold"),
    ("at", lambda model, x: (model.trunk(x), model.trunk(x)), "at does not hold"),
    ("at", lambda model, x: {"d": model.trunk(x)}, "at names unknown task 'd'"),
    *(("at", lambda model, x, at=at: at, "at must be") for at in ("z", 3, (), {}, {"a": None}, [None])),
    ("mask", {"d": torch.ones(BATCH, dtype=torch.bool)}, "mask names unknown task 'd'"),
    ("mask", {"a": torch.ones(BATCH)}, r"mask\['a'\] must be a bool tensor"),
    ("mask", {"a": torch.ones(BATCH, 1, dtype=torch.bool)}, r"mask\['a'\] must be a bool tensor"),
    ("mask", {"a": [True] * BATCH}, r"mask\['a'\] must be a bool tensor"),
    ("mask", {"a": True}, r"mask\['a'\] must be a bool tensor"),
    ("mask", torch.ones(BATCH, dtype=torch.bool), "mask must be a dict"),
]
SIZES = [("mask", {"a": torch.ones(size, dtype=torch.bool)}, f"mask has {size} entries") for size in (1, 7, 16)]


@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_what_is_no_representation_or_no_mask_is_refused(method):
    model, balancer, x, targets = after_two_steps(method)
    for argument, value, match in [*WRONG, *(SIZES if needs_z(method) else [])]:
        value = value(model, x) if argument == "at" else value
        refused(balancer, model, losses_of(model(x), targets), match, **{argument: value})


def test_batches_of_different_size_in_one_representation():
    model = MultiTask(nn.GRU(FEATURES, WIDTH)).to(DEVICE)
    balancer = ROBUST.create(model.trunk)
    outputs, hidden = model.trunk(torch.randn(5, BATCH, FEATURES, device=DEVICE))
    losses = {task: model.heads[task](outputs[0] + hidden[-1]).square().mean() for task in TASKS}
    refused(balancer, model, losses, "batch_dim|same dimension")


def test_one_sample_is_too_few_and_says_so():
    model, balancer = started(ROBUST)
    trained(balancer, model, 2)
    before = balancer.state_dict()
    with pytest.warns(UserWarning, match="1 sample"):
        balancer.backward(model.losses(1))
    for name in ("memory.state_signal", "memory.state_noise", "memory.state_paired"):
        torch.testing.assert_close(balancer.state_dict()[name], before[name])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"tasks": "ab"}, "tasks must be a list"),
        ({"tasks": []}, "tasks is empty"),
        ({"tasks": ["a", "a"]}, "more than once"),
        ({"tasks": ["a", 3]}, "non-empty strings"),
        ({"shared": "trunk"}, "shared must"),
        ({"shared": []}, "no parameters"),
        ({"shared": nn.ReLU()}, "no parameters"),
        ({"shared": None}, "shared must be"),
        ({"shared": nn.LazyLinear(3)}, "run one forward"),
        ({"shared": [torch.zeros(3, requires_grad=True) * 2]}, "leaf"),
        ({"heads": "none"}, "heads must be"),
        ({"every": 0}, "every must be"),
        ({"every": 1.5}, "every must be"),
        ({"no_such_option": 1}, "no_such_option"),
    ],
)
def test_a_balancer_that_cannot_be_made(arguments, match):
    with pytest.raises(ValueError, match=match):
        ROBUST.create(**{"shared": nn.Linear(2, 2), **arguments})


def test_losses_that_are_kept_keep_no_representation_below_a_marked_one():
    trunk, between, head = (nn.Linear(4, 4).to(DEVICE) for _ in range(3))
    balancer = excessmtl.create("uniform", tasks=["a", "b"], shared=trunk)
    kept = []
    for _ in range(3):
        z = trunk(torch.randn(8, 4, device=DEVICE))
        pooled = excessmtl.representation(between(z).tanh())
        losses = {"a": head(pooled).mean(), "b": pooled.square().mean()}
        balancer.backward(losses)
        kept.append(losses)
        assert "excessmtl.representation" not in z.grad_fn.metadata
