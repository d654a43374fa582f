"""Weights worked out on paper, one line per method."""

from math import exp, log, sqrt

import pytest
import torch
from observing import observe, rule_of, start, weights_of
from torch import nn

import excessmtl

UNEQUAL = [[1.0, 0.0], [0.0, 2.0]]
EQUAL = [[1.0, 0.0], [0.0, 1.0]]
CONFLICT = [[1.0, 0.0], [-1.0, 1.0]]

TABLE = [
    ("uniform", {}, UNEQUAL, [1, 2], [0.5, 0.5]),
    ("static", {}, UNEQUAL, [1, 2], [1, 1]),
    ("static", {"weights": {"task1": 3, "task0": 0.5}}, UNEQUAL, [1, 2], [0.5, 3]),
    ("groupdro", {"step_size": log(3)}, UNEQUAL, [0, 1], [0.25, 0.75]),
    ("gradnorm", {}, UNEQUAL, [1, 2], [1, 1]),
    ("gradnorm", {"initial_losses": [1, 1]}, EQUAL, [1, 3], [1, 1]),
    ("mgda", {}, UNEQUAL, [1, 2], [0.8, 0.2]),
    ("mgda", {"normalize": "l2"}, UNEQUAL, [1, 2], [0.5, 0.5]),
    ("mgda", {"normalize": "loss"}, UNEQUAL, [1, 2], [0.5, 0.5]),
    ("mgda", {"normalize": "loss+"}, UNEQUAL, [1, 2], [0.2, 0.8]),
    ("imtl", {}, UNEQUAL, [1, 2], [2 / 3, 1 / 3]),
    ("imtl_hybrid", {}, UNEQUAL, [1, 2], [2 / 3, 1 / 3]),
    ("imtl_l", {}, UNEQUAL, [1, 2], [1, 1]),
    ("uw", {}, UNEQUAL, [1, 2], [0.5, 0.5]),
    ("uw", {"kinds": ["classification", "regression"]}, UNEQUAL, [1, 2], [1, 0.5]),
    ("dtp", {}, UNEQUAL, [log(2), log(4)], [0.5 * log(2), 0.75 * log(4)]),
    ("dtp", {"gamma": [0, 2]}, UNEQUAL, [log(2), log(4)], [log(2), 0.75**2 * log(4)]),
    ("dwa", {}, UNEQUAL, [1, 2], [1, 1]),
    ("pcgrad", {}, UNEQUAL, [1, 2], [1, 1]),
    ("pcgrad", {}, CONFLICT, [1, 2], [2, 1.5]),
    ("cagrad", {"rescale": 0}, EQUAL, [1, 2], [0.7, 0.7]),
    ("cagrad", {}, EQUAL, [1, 2], [0.7 / 1.16, 0.7 / 1.16]),
    ("cagrad", {"rescale": 2}, EQUAL, [1, 2], [0.5, 0.5]),
    ("uw_so", {}, UNEQUAL, [1, 0.5], [1 / (1 + exp(1)), exp(1) / (1 + exp(1))]),
    ("uw_so", {"temperature": 2}, UNEQUAL, [1, 0.2], [1 / (1 + exp(2)), exp(2) / (1 + exp(2))]),
    ("log_loss", {}, UNEQUAL, [1, 4], [1, 0.25]),
    ("gls", {}, UNEQUAL, [1, 4], [1, 0.25]),
    ("igb", {}, UNEQUAL, [1, 4], [1, 0.25]),
    ("stch", {}, UNEQUAL, [1, 4], [1, 0.25]),
    ("famo", {}, UNEQUAL, [1, 4], [0.8, 0.2]),
    ("famo", {"lower": [0, 3]}, UNEQUAL, [1, 4], [0.5, 0.5]),
    ("nash", {"max_norm": None}, UNEQUAL, [1, 2], [1, 0.5]),
    ("nash", {}, UNEQUAL, [1, 2], [1 / sqrt(2), 0.5 / sqrt(2)]),
]


@pytest.mark.parametrize(("name", "options", "gradients", "losses", "expected"), TABLE)
def test_first_step(name, options, gradients, losses, expected):
    found = weights_of(name, gradients, losses, **options)
    assert found.tolist() == pytest.approx(expected, rel=2e-4)


def test_dtp_averages_the_indicators_and_falls_back_where_there_is_none():
    rule = rule_of("dtp", 2, rate=0.5)
    first = observe(UNEQUAL, [log(2), log(4)], metrics=torch.tensor([0.9, torch.nan]))
    state = rule.update(start(rule, 2), first).state
    assert state["average"].tolist() == pytest.approx([0.9, 0.25])  # exp(-loss) stands in
    second = observe(UNEQUAL, [1.0, 1.0], metrics=torch.tensor([0.5, 0.75]))
    decision = rule.update(state, second)
    # The first real indicator takes the place of what stood in for it.
    assert decision.weights.tolist() == pytest.approx([-0.3 * log(0.7), -0.25 * log(0.75)], rel=1e-5)
    third = rule.update(decision.state, observe(UNEQUAL, [5.0, 5.0]))
    assert third.weights.tolist() == pytest.approx(decision.weights.tolist(), rel=1e-6)


def test_dwa_by_windows_where_nobody_ends_an_epoch():
    rule = rule_of("dwa", 2, window=2)
    state, history = start(rule, 2), []
    for losses in ([3, 1], [1, 1], [1, 2], [1, 0], [9, 9], [9, 9]):
        decision = rule.update(state, observe(UNEQUAL, losses))
        state = decision.state
        history.append(decision.weights.tolist())
    assert history[:4] == [[1, 1]] * 4
    assert history[4] == pytest.approx((2 * torch.tensor([0.5 / 2, 1 / 2]).softmax(0)).tolist())


def test_dwa_forgets_windows_once_it_is_told_of_epochs():
    by_epochs, mixed = rule_of("dwa", 2, window=1000), rule_of("dwa", 2, window=2)
    torch.manual_seed(0)
    states = [start(by_epochs, 2), start(mixed, 2)]
    for epoch in range(4):
        for _ in range(7):
            seen = observe(UNEQUAL, torch.rand(2) + 0.5)
            decisions = [rule.update(state, seen) for rule, state in zip((by_epochs, mixed), states, strict=True)]
            states = [decision.state for decision in decisions]
            if epoch > 0:
                assert torch.equal(decisions[0].weights, decisions[1].weights)
        states = [rule.end_epoch(state) for rule, state in zip((by_epochs, mixed), states, strict=True)]


@pytest.mark.parametrize(("name", "epoch"), [("igb", {"base_epoch": 1}), ("stch", {"warmup_epochs": 1, "mu": 0.5})])
def test_losses_are_compared_with_those_of_an_early_window_where_nobody_ends_an_epoch(name, epoch):
    """Two steps are a window; the second has means 2 and 4; then the losses are 1 and 8."""
    rule = rule_of(name, 2, window=2, **epoch)
    state, history = start(rule, 2), []
    for losses in ([9, 9], [9, 9], [1, 4], [3, 4], [1, 8]):
        decision = rule.update(state, observe(UNEQUAL, losses))
        state = decision.state
        history.append(decision.weights * torch.tensor(losses))
    shares = torch.tensor([0.5, 2.0]).softmax(0) if name == "igb" else torch.tensor([0.25, 4]) / 4.25
    assert all(before.tolist() == pytest.approx([1, 1]) for before in history[:4])
    assert history[4].tolist() == pytest.approx((2 * shares).tolist())


@pytest.mark.parametrize("name", ["uw_so", "gls", "igb", "stch", "famo"])
def test_batches_with_one_task_at_a_time_are_weighed_by_the_losses_of_all(name):
    rule, losses = rule_of(name, 2), torch.tensor([0.5, 2.0])
    state = start(rule, 2)
    together = rule.update(state, observe(UNEQUAL, losses)).weights
    for task in (0, 1):
        decision = rule.update(state, observe(UNEQUAL, losses, ok=torch.arange(2) == task))
        state = decision.state
    torch.testing.assert_close(decision.weights, together)


def test_moml_without_normalisation():
    """Training losses theta_i at theta = 0, validation gradients twice 5 u and once v, with u.u = v.v = 2, u.v = -1.

    The shortest of the segment from 5 u to v has the share 7 / 62 of 5 u. The logits move against it by Adam's first
    step: by the rate, whatever the length.
    """
    theta, u, v = nn.Parameter(torch.zeros(3)), torch.tensor([1.0, -1.0, 0.0]), torch.tensor([0.0, 1.0, -1.0])
    balancer = excessmtl.create("moml", tasks=list("abc"), shared=[theta], step_size=0.01, normalize="none")
    validation = {"a": theta @ (5 * u) + 1, "b": theta @ v + 10, "c": theta @ (5 * u) + 1}
    balancer.backward({task: theta[i] * 1 for i, task in enumerate("abc")}, validation_losses=validation)
    direction = 7 / 62 * 5 * u + 55 / 62 * v
    torch.testing.assert_close(balancer.state["logits"], 0.01 * direction.sign(), rtol=1e-3, atol=0)
