"""What a step says: a table, the numbers of one task, plain floats for a logger."""

import json
import math
import weakref

import pytest
import torch

import excessmtl
from choices import ROBUST, UNIFORM, both_forms
from models import TASKS, batch, heads_on, mlp
from steps import started, take_step


def made_up():
    """a is usual, b was left out, c has no label."""
    nan = math.nan
    weights, losses = torch.tensor([1.5, 0.0, 0.25]), torch.tensor([0.1234567, math.inf, nan])
    risks, left_out = torch.tensor([2e-7, nan, nan]), torch.tensor([0.0, 12.0, 0.0])
    return excessmtl.Step.of(("price", "b", "c"), weights, losses, risks, left_out)


def test_printed_it_is_a_table():
    assert str(made_up()).splitlines() == [
        "task   weight  batch loss  excess risk",
        "price  1.5000      0.1235     2.00e-07",
        "b      0.0000         inf            -  left out",
        "c      0.2500           -            -",
    ]


def test_a_table_has_no_column_for_what_is_not_there():
    model = mlp()
    shown = str(UNIFORM.create(model.trunk).backward(model.losses()))
    assert shown.splitlines()[0].split() == ["task", "weight", "loss"]
    assert "left out" not in shown
    assert [line.split()[0] for line in shown.splitlines()[1:]] == TASKS


def test_the_numbers_of_one_task():
    step = made_up()
    price = step["price"]
    assert (price.weight, price.skipped) == (1.5, False)
    assert price.loss == pytest.approx(0.1234567)
    assert price.excess_risk == pytest.approx(2e-7)
    assert all(type(number) is float for number in (price.weight, price.loss, price.excess_risk))
    assert step["b"].skipped is True
    assert math.isinf(step["b"].loss)
    assert list(step) == ["price", "b", "c"]
    assert "price" in step
    with pytest.raises(KeyError, match=r"unknown task 'prize'; the tasks are \['price', 'b', 'c'\]"):
        step["prize"]


def test_a_logger_gets_valid_json():
    step = made_up()
    plain = json.loads(json.dumps(step.to_dict(), allow_nan=False))
    assert plain == step.to_dict()
    others = {name for name in plain if not name.startswith(("weights/", "skipped/"))}
    assert others == {"losses/price", "excess_risks/price"}
    skipped = {name: plain[name] for name in plain if name.startswith("skipped/")}
    assert skipped == {"skipped/price": 0.0, "skipped/b": 1.0, "skipped/c": 0.0}


@both_forms
@pytest.mark.parametrize("method", [ROBUST, UNIFORM], ids=str)
def test_the_last_step_is_kept_in_both_forms(method, scalar):
    model, balancer = started(method)
    assert balancer.last_step is None
    for _ in range(2):
        step = take_step(balancer, model.losses(), scalar)
        assert balancer.last_step is step
        assert torch.equal(balancer.last_step.losses, step.losses)
    assert not step.numbers.requires_grad


@both_forms
@pytest.mark.parametrize("accumulate", [False, True])
def test_the_last_step_and_a_micro_batch_keep_no_graph_alive(scalar, accumulate):
    model, balancer = started(ROBUST)
    x, targets = batch()
    z = model.trunk(x)
    losses = heads_on(model, z, targets)
    take_step(balancer, losses, scalar, accumulate=accumulate)
    watched = [weakref.ref(tensor) for tensor in (z, *losses.values())]
    del z, losses
    assert [reference() for reference in watched] == [None] * 4
    assert balancer.last_step.losses.isfinite().all()
    assert balancer.last_step.numbers.untyped_storage().nbytes() == 4 * len(TASKS) * 4
