"""Floors: the share of a protected task never falls below them, and the method does not notice."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from choices import GRADNORM, PAPER, ROBUST, UNIFORM, Method
from excessmtl.step.multipliers import with_floors
from models import TASKS, batch, losses_of, mlp
from steps import check_backward, started, trained
from test_no_host_reads import NoHostWrites, step

each_method = pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM, GRADNORM, Method("nash")], ids=str)
FLOORS = {"a": 0.5, "c": 0.45}


def by_bisection(shares, floors):
    """max(f, c p) for protected tasks and c p for the others, with the c for which they sum to 1."""

    def shrunk(c):
        return np.where(floors > 0, np.maximum(floors, c * shares), c * shares)

    if (shares >= floors).all():
        return shares
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if shrunk(middle).sum() < 1 else (low, middle)
    return shrunk(low)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), tasks=st.integers(1, 8), total=st.sampled_from([1.0, 7.0, 1e-3]))
def test_floors_are_kept_with_one_factor_for_the_others(data, tasks, total):
    raw = np.array(data.draw(st.lists(st.floats(0, 1, width=32), min_size=tasks, max_size=tasks)))
    raw[0] += 1e-3
    wanted = np.array(data.draw(st.lists(st.sampled_from([0, 0, 1, 5, 20]), min_size=tasks, max_size=tasks)))
    floors = 0.9 * wanted / max(wanted.sum(), 25)
    if not floors.any():
        return
    shares = raw / raw.sum()
    found = with_floors(torch.tensor(total * shares, dtype=torch.float32), tuple(floors.tolist())).double().numpy()
    np.testing.assert_allclose(found / total, by_bisection(shares, floors), rtol=1e-4, atol=1e-6)
    assert found.sum() == pytest.approx(total, rel=1e-5)
    assert (found / total >= floors - 1e-6).all()


def test_all_weight_on_one_task():
    torch.testing.assert_close(with_floors(torch.tensor([0.0, 1.0]), (0.2, 0.0)), torch.tensor([0.2, 0.8]))
    torch.testing.assert_close(with_floors(torch.tensor([0.0, 1.0]), (0.2, 0.3)), torch.tensor([0.2, 0.8]))
    torch.testing.assert_close(with_floors(torch.tensor([0.0, 0.0]), (0.2, 0.3)), torch.tensor([0.0, 0.0]))


def test_negative_weights_shrink_with_the_others_or_are_raised():
    weights = torch.tensor([-0.5, 1.0, 0.5])
    torch.testing.assert_close(with_floors(weights, (0.0, 0.0, 0.6)), torch.tensor([-0.4, 0.8, 0.6]))
    torch.testing.assert_close(with_floors(weights, (0.25, 0.0, 0.0)), torch.tensor([0.25, 0.5, 0.25]))
    assert torch.equal(with_floors(-weights, (0.0, 0.0, 0.6)), -weights)  # no share of a negative total


@each_method
@pytest.mark.parametrize("scale", ["sum", 2.5])
def test_shares_keep_to_their_floors_and_the_total_stays(method, scale):
    model, plain_model = mlp(), mlp()
    balancer = method.create(model.trunk, protect=FLOORS, scale=scale)
    plain = method.create(plain_model.trunk, scale=scale)
    (found,), (free,) = trained(balancer, model, 1), trained(plain, plain_model, 1)
    assert found.weights.sum().item() == pytest.approx(free.weights.sum().item(), rel=1e-4)
    shares = dict(zip(TASKS, (found.weights / found.weights.sum()).tolist(), strict=True))
    assert all(shares[task] >= floor - 1e-5 for task, floor in FLOORS.items()), shares
    if (free.weights >= 0).all():
        floors = np.array([FLOORS.get(task, 0) for task in TASKS])
        wanted = by_bisection((free.weights / free.weights.sum()).double().cpu().numpy(), floors)
        assert list(shares.values()) == pytest.approx(wanted, abs=1e-4)


@each_method
def test_the_method_does_not_notice(method):
    """One step on the same gradients: state and own weights are those without floors, bit for bit."""
    found = []
    for protect in (None, FLOORS):
        model, balancer = started(method, protect=protect)
        trained(balancer, model, 1)
        found.append(dict(balancer.named_buffers()))
    plain, floored = found
    assert plain.keys() == floored.keys()
    assert [key for key in plain if not torch.equal(plain[key], floored[key])] == []


@each_method
def test_the_gradient_is_that_of_the_multipliers_shown(method):
    model, balancer = started(method, protect=FLOORS)
    for scalar in (False, True):
        check_backward(balancer, model.losses(), model, model.trunk, scalar=scalar)


def test_a_missing_task_keeps_its_weight_and_floors_are_shares_of_all():
    model, balancer = started(UNIFORM, protect={"a": 0.5})
    x, targets = batch()
    losses = losses_of(model(x), targets)
    assert balancer.backward({"a": losses["a"], "b": losses["b"]}).weights.tolist() == pytest.approx([1.5, 0.75, 0.75])
    losses = losses_of(model(x), targets)
    assert balancer.backward({"b": losses["b"]}).weights.tolist() == pytest.approx([1.5, 0.75, 0.75])
    assert balancer.weights.tolist() == pytest.approx([1 / 3] * 3)


def test_floors_hold_while_the_weights_rest():
    model, balancer = started(UNIFORM, protect={"a": 0.5}, every=3)
    assert all(one.weights.tolist() == pytest.approx([1.5, 0.75, 0.75]) for one in trained(balancer, model, 4))


def test_nothing_is_read_from_the_device_or_brought_to_it():
    model, balancer = started(UNIFORM, protect=FLOORS)
    step(balancer, model)
    with NoHostWrites():
        step(balancer, model)


@pytest.mark.parametrize(
    ("protect", "message"),
    [
        ({"d": 0.2}, r"protect names unknown task 'd'; the tasks are \['a', 'b', 'c'\]"),
        ({"a": 0.6, "b": 0.4}, "protect has shares that sum to 1, which leaves nothing"),
        ({"a": 0.6, "b": 0.6}, "protect has shares that sum to 1.2"),
        ({"a": 1}, r"protect\['a'\] must be a share of the weight between 0 and 1, found 1"),
        ({"a": 0}, "between 0 and 1, found 0"),
        ({"a": -0.1}, "between 0 and 1, found -0.1"),
        ({"a": "much"}, "between 0 and 1, found 'much'"),
        ({"a": float("nan")}, "between 0 and 1, found nan"),
        (0.2, "protect must be a dict from task name to a share of the weight, found float"),
        (["a"], "protect must be a dict from task name"),
    ],
)
def test_what_is_no_floor_is_refused(protect, message):
    with pytest.raises(ValueError, match=message):
        UNIFORM.create(mlp().trunk, protect=protect)


@pytest.mark.parametrize("name", ["graddrop", "moco", "db_mtl", "trimmed_mean"])
def test_a_method_without_weights_says_so(name):
    with pytest.raises(ValueError, match=f"protect is not used by '{name}', which has no weight per task"):
        Method(name).create(mlp().trunk, protect={"a": 0.2})
    with pytest.raises(ValueError, match="every must be 1"):
        Method(name).create(mlp().trunk, every=2)
