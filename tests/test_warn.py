"""A warning names the line of the training loop that caused it, whatever lies between that line and the warning."""

import linecache
from pathlib import Path

import pytest
import torch
from torch import nn

import excessmtl
from choices import PAPER, ROBUST, UNIFORM
from excessmtl.integrations import as_loss
from models import DEVICE, TASKS, mlp

at_once = pytest.mark.skipif(DEVICE.type == "cuda", reason="on a GPU the numbers of a step arrive in a later one")


def not_finite(method=UNIFORM):
    model = mlp()
    return method.create(model.trunk), {task: loss * torch.nan for task, loss in model.losses().items()}


def whole_model():
    model = mlp()
    return PAPER.create(model), model.losses()


def one_sample():
    model = mlp()
    return ROBUST.create(model.trunk), model.losses(1)


def backward(balancer, losses):
    balancer.backward(losses)  # the call


def scalar_form(balancer, losses):
    balancer(losses)  # the call


def loss_of_a_trainer(balancer, losses):
    scalar = as_loss(balancer, losses)
    scalar.backward()  # the call


def inside_a_function_of_torch(balancer, losses):
    with_gradients = torch.enable_grad()(lambda: balancer.backward(losses))  # the call
    with_gradients()


FORMS = [backward, scalar_form, loss_of_a_trainer, inside_a_function_of_torch]


def check(caught, message):
    warnings = [warning for warning in caught if message in str(warning.message)]
    assert warnings
    for warning in warnings:
        assert warning.category is UserWarning
        assert warning.filename == __file__
        assert linecache.getline(warning.filename, warning.lineno).rstrip().endswith("# the call")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (not_finite, "every task of a step was left out"),
        (whole_model, "is the whole model"),
        (one_sample, "has 1 sample along batch_dim"),
    ],
    ids=["not finite", "whole model", "one sample"],
)
def test_a_step_warns_at_the_line_that_takes_it(problem, message, form):
    if DEVICE.type == "cuda" and (problem is not_finite or form is loss_of_a_trainer):
        pytest.skip("a GPU tells a step later, and in a thread of its own")
    balancer, losses = problem()
    with pytest.warns(UserWarning, match=message) as caught:
        form(balancer, losses)
    check(caught, message)


def test_layers_that_are_missing_warn_at_the_line_that_makes_the_balancer():
    with pytest.warns(UserWarning, match="bayes_agg has no layers") as caught:
        excessmtl.create("bayes_agg", tasks=TASKS, shared=nn.Linear(3, 1))  # the call
    check(caught, "bayes_agg has no layers")


@at_once
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_step_warns_at_the_line_that_takes_it():
    balancer, losses = not_finite()

    @torch.compile(backend="eager")
    def step(losses):
        balancer.backward(losses)  # the call

    with pytest.warns(UserWarning, match="every task of a step was left out") as caught:
        step(losses)
    check(caught, "every task of a step was left out")


def test_no_other_code_warns_by_counting_calls():
    package = Path(excessmtl.__file__).parent
    lines = {path.relative_to(package): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert [path for path, text in lines.items() if "stacklevel" in text or "warnings.warn(" in text] == []
