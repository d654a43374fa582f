"""Dominance, fronts, hypervolume and stationarity against brute force."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import nn

from excessmtl import dominates, hypervolume, pareto_front, pareto_stationarity
from excessmtl.pareto import gradient_cosines

# Few distinct values, so that ties and duplicates are common: that is where such code goes wrong.
coarse = st.integers(0, 4).map(float)


def points(tasks, most=12):
    return st.lists(st.tuples(*[coarse] * tasks), min_size=0, max_size=most).map(
        lambda rows: np.array(rows, dtype=float).reshape(-1, tasks)
    )


@given(st.integers(1, 4).flatmap(lambda m: st.tuples(st.tuples(*[coarse] * m), st.tuples(*[coarse] * m))))
def test_dominance_is_the_definition(pair):
    a, b = pair
    expected = all(x <= y for x, y in zip(a, b, strict=True)) and a != b
    assert dominates(a, b) is expected
    assert dominates(torch.tensor(a), list(b)) is expected


@given(st.integers(1, 4).flatmap(points))
def test_the_front_is_what_no_point_dominates(rows):
    mask = pareto_front(rows)
    assert mask.dtype == bool
    assert mask.shape == (len(rows),)
    assert mask.tolist() == [not any(dominates(other, row) for other in rows) for row in rows]


def cells_below(rows, reference):
    """Brute force: every cell of the grid through all coordinates, counted when a point is at or below its corner."""
    axes = [np.unique(np.append(rows[:, k], reference[k])) for k in range(len(reference))]
    axes = [axis[axis <= reference[k]] for k, axis in enumerate(axes)]
    total = 0.0
    for corner in itertools.product(*(range(len(axis) - 1) for axis in axes)):
        low = np.array([axis[i] for axis, i in zip(axes, corner, strict=True)])
        sides = [axis[i + 1] - axis[i] for axis, i in zip(axes, corner, strict=True)]
        total += np.prod(sides) if (rows <= low).all(1).any() else 0.0
    return total


@settings(max_examples=60)
@given(st.sampled_from([2, 3]).flatmap(lambda m: st.tuples(points(m), st.tuples(*[coarse] * m))))
def test_hypervolume_is_the_number_of_cells(problem):
    rows, reference = problem
    assert hypervolume(rows, reference) == pytest.approx(cells_below(rows, np.array(reference)))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 10_000))
def test_stationarity_is_the_shortest_combination(tasks, size, seed):
    gradients = torch.randn(tasks, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    theta = nn.Parameter(torch.zeros(size, dtype=torch.float64))
    norm, weights = pareto_stationarity({f"t{i}": g @ theta for i, g in enumerate(gradients)}, [theta])
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    assert norm == pytest.approx((weights @ gradients).norm())
    rows = gradients.numpy()
    sum_to_1 = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(tasks)}
    how = {"jac": lambda w: 2 * rows @ (w @ rows), "bounds": [(0, 1)] * tasks, "constraints": sum_to_1}
    how |= {"method": "SLSQP", "options": {"ftol": 1e-15, "maxiter": 500}}
    starts = np.full(tasks, 1 / tasks), *np.eye(tasks)
    brute = min(minimize(lambda w: ((w @ rows) ** 2).sum(), start, **how).fun for start in starts)
    # The squares are compared: SLSQP stops at 1e-15 in the objective, which is 3e-8 in the norm.
    assert norm.item() ** 2 == pytest.approx(brute, abs=1e-8)


def test_a_stationary_point_of_a_model_is_found_and_left_as_it_was():
    theta = nn.Parameter(torch.tensor([0.25, 0.0]))
    losses = [(theta - torch.tensor([1.0, 0.0])).square().sum(), (theta + torch.tensor([1.0, 0.0])).square().sum()]
    norm, weights = pareto_stationarity(losses, [theta])
    assert norm < 1e-6
    torch.testing.assert_close(weights, torch.tensor([0.625, 0.375], dtype=torch.float64))
    assert theta.grad is None
    sum(losses).backward()


def test_cosines_of_task_gradients():
    point = nn.Parameter(torch.tensor([1.0, 0.0]))
    found = gradient_cosines({"right": point[0], "left and up": point[1] - point[0], "flat": 0 * point.sum()}, [point])
    assert found[:2, :2].flatten().tolist() == pytest.approx([1, -(0.5**0.5), -(0.5**0.5), 1])
    assert found[2].isnan().all()
    assert point.grad is None


def test_a_frozen_part_and_a_loss_on_a_part_only():
    trunk = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    trunk[0].requires_grad_(False)
    norm, weights = pareto_stationarity({"a": trunk(torch.ones(4, 2)).mean(), "b": trunk[1].bias.sum()}, trunk)
    gradients = [torch.cat([trunk[0](torch.ones(2)).detach(), torch.ones(1)]), torch.tensor([0.0, 0.0, 0.0, 1.0])]
    expected = (weights.float()[:, None] * torch.stack(gradients)).sum(0).norm()
    assert norm.item() == pytest.approx(expected.item(), rel=1e-5)


def test_mistakes_are_named():
    theta, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    loss = theta.sum()
    cases = [
        (lambda: pareto_stationarity({}, [theta]), "losses is empty"),
        (lambda: pareto_stationarity(loss, [theta]), "dict or a list"),
        (lambda: pareto_stationarity({"a": loss, "b": None}, [theta]), r"losses\['b'\] is None"),
        (lambda: pareto_stationarity({"a": loss, "b": other.sum()}, [theta]), r"losses\['b'\] does not reach shared"),
        (lambda: pareto_stationarity({"a": theta}, [theta]), "must be a scalar"),
        (lambda: pareto_stationarity([(theta - 1).norm() / 0 * loss], [theta]), "not finite"),
        (lambda: pareto_stationarity([loss], [torch.ones(2)]), "needs a gradient"),
        (lambda: dominates([1, 2], [1, 2, 3]), "a has 2 losses and b has 3"),
        (lambda: dominates([1, float("nan")], [1, 2]), "not a number"),
        (lambda: pareto_front([1.0, 2.0]), "2 dimension"),
        (lambda: hypervolume([[1.0] * 4], [2.0] * 4), "two or three"),
        (lambda: hypervolume([[1.0, 1.0]], [2.0] * 3), "reference has 3"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
