"""Weights worked out on paper, one line per method."""

from math import exp, log, sqrt

import pytest
import torch
from observing import observe, rule_of, start, weights_of

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


def test_rlw_is_the_softmax_of_the_draws():
    draws = torch.randn(2, generator=torch.Generator().manual_seed(5))
    assert torch.equal(weights_of("rlw", UNEQUAL, seed=5), draws.softmax(0))


@pytest.mark.parametrize(("name", "scale"), [("imtl_l", 1.0), ("uw", 0.5)])
def test_learned_scales_after_one_step(name, scale):
    """Adam's first step is the rate, whatever the size of the gradient."""
    rule = rule_of(name, 2)
    seen = observe(UNEQUAL, [3.0, 0.5])
    state = rule.update(start(rule, 2), seen).state
    expected = [scale * exp(-0.025), scale * exp(0.025)]
    assert rule.update(state, seen).weights.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("name", "product"), [("imtl_l", 1.0), ("uw", 0.5)])
def test_learned_scales_settle_at_their_optimum(name, product):
    """e^s l = 1 for IMTL-L, 0.5 e^{-s} l = 0.5 for UW."""
    rule, losses = rule_of(name, 2), [3.0, 0.5]
    state, seen = start(rule, 2), observe(UNEQUAL, losses)
    for _ in range(400):
        decision = rule.update(state, seen)
        state = decision.state
    assert (decision.weights * torch.tensor(losses)).tolist() == pytest.approx([product] * 2, rel=1e-2)


def test_moml_raises_the_task_whose_training_helps_the_validation():
    """h_1 = -0.05 (1, -1), h_2 = -0.025 (1, -1): whatever gamma is, Adam moves p by the rate."""
    rule = rule_of("moml", 2)
    seen = observe(UNEQUAL, cross=torch.tensor([[2.0, 0.0], [1.0, 0.0]]))
    weights = rule.update(start(rule, 2), seen).weights
    assert weights.tolist() == pytest.approx(torch.tensor([1e-3, -1e-3]).softmax(0).tolist(), rel=1e-6)
    assert rule.lookahead(start(rule, 2)).tolist() == pytest.approx([0.05, 0.05])


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


def test_dwa_by_epochs():
    rule = rule_of("dwa", 2)
    state, history = start(rule, 2), []
    for epoch in ([[3, 1], [1, 1]], [[1, 2], [1, 0]], [[9, 9], [9, 9]]):
        for losses in epoch:
            decision = rule.update(state, observe(UNEQUAL, losses))
            state = decision.state
            history.append(decision.weights.tolist())
        state = rule.end_epoch(state)
    expected = (2 * torch.tensor([0.5 / 2, 1 / 2]).softmax(0)).tolist()
    assert history[:4] == [[1, 1]] * 4
    assert history[4] == pytest.approx(expected)
    assert history[5] == pytest.approx(expected)


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


@pytest.mark.parametrize(
    ("options", "gradients", "losses", "expected"),
    [
        # G = (1, 2) and r = (1, 1), so the target is (1.5, 1.5): w = (1 + 0.025 * 1, 1 - 0.025 * 2), then of sum 2.
        ({}, UNEQUAL, [1, 2], [2 * 1.025 / 1.975, 2 * 0.95 / 1.975]),
        # G = (1, 1) and r = (1/2, 3/2): the target is below the one and above the other.
        ({"initial_losses": [1, 1]}, EQUAL, [1, 3], [0.975, 1.025]),
    ],
)
def test_gradnorm_applies_its_new_weights_in_the_next_step(options, gradients, losses, expected):
    rule = rule_of("gradnorm", 2, **options)
    state = rule.update(start(rule, 2), observe(gradients, losses)).state
    second = rule.update(state, observe(EQUAL, [9.0, 0.1]))  # whatever this step shows
    assert second.weights.tolist() == pytest.approx(expected, rel=1e-5)


def test_gradnorm_remembers_the_first_loss_and_weighs_the_task_that_lags():
    """l / l(0) = (1, 1/4), so r = (1.6, 0.4) and the first task's gradient is to be the longer one."""
    rule = rule_of("gradnorm", 2)
    state = rule.update(start(rule, 2), observe(EQUAL, [2.0, 4.0])).state
    assert state["weights"].tolist() == pytest.approx([1, 1])
    state = rule.update(state, observe(EQUAL, [2.0, 1.0])).state
    assert rule.update(state, observe(EQUAL, [2.0, 1.0])).weights.tolist() == pytest.approx([1.025, 0.975], rel=1e-5)


def test_graddrop_keeps_one_sign_per_feature():
    gradients = torch.tensor([[1.0, 1.0, -2.0, 0.0], [1.0, -3.0, 2.0, 0.0]])
    z = torch.tensor([[1.0, 1.0, -1.0, 1.0]])
    purity = torch.tensor([1.0, 0.25, 0.5, 0.5])
    rule = rule_of("graddrop", 2, leak=0.25)
    for seed in range(20):
        decision = rule.update({}, observe(gradients, z=z, seed=seed))
        up = purity > torch.rand(4, generator=torch.Generator().manual_seed(seed))
        signed = gradients * z.sign()
        keep = torch.where(up, signed > 0, signed < 0).float()
        for task, (gate,) in enumerate(decision.gates):
            assert gate.expand_as(gradients[task]).tolist() == (0.25 + 0.75 * keep[task]).tolist()
            assert decision.weights[task] == pytest.approx((0.25 + 0.75 * keep[task]).mean().item())


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("name", "epoch"), [("igb", {"base_epoch": 1}), ("stch", {"warmup_epochs": 1, "mu": 0.5})])
def test_losses_are_compared_with_those_of_an_early_epoch(name, epoch, told):
    """Two steps are an epoch; the second has means 2 and 4; then the losses are 1 and 8."""
    rule = rule_of(name, 2, window=1000 if told else 2, **epoch)
    state, history = start(rule, 2), []
    for losses in ([9, 9], [9, 9], [1, 4], [3, 4], [1, 8]):
        decision = rule.update(state, observe(UNEQUAL, losses))
        state = decision.state
        history.append(decision.weights * torch.tensor(losses))
        if told and len(history) % 2 == 0:
            state = rule.end_epoch(state)
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


def test_famo_takes_weight_from_the_task_that_has_improved_more():
    """Adam's first step on xi is the rate; without `after_step` the next losses serve."""
    rule = rule_of("famo", 2, decay=0.0)
    state = rule.update(start(rule, 2), observe(UNEQUAL, [1.0, 1.0])).state
    moved = rule.after_step(state, torch.tensor([0.5, 0.9]), torch.ones(2, dtype=torch.bool))
    assert moved["logits"].tolist() == pytest.approx([-0.025, 0.025], rel=1e-4)
    later = rule.update(moved, observe(UNEQUAL, [1.0, 1.0]))  # nothing waits any more
    assert later.weights.tolist() == pytest.approx(torch.tensor([-0.025, 0.025]).softmax(0).tolist(), rel=1e-4)
    fallback = rule.update(state, observe(UNEQUAL, [0.5, 0.9]))
    assert fallback.state["logits"].tolist() == pytest.approx([-0.025, 0.025], rel=1e-4)


@pytest.mark.parametrize("compare", ["weighted", "plain"])
def test_ldc_mtl_is_the_gradient_of_its_objective(compare):
    """Model and weights descend on sum s l + c sum |t_i l_i - t_(i+1) l_(i+1)|; torch's autograd and Adam say how."""
    rule = rule_of("ldc_mtl", 4, penalty=0.3, step_size=0.05, compare=compare)
    state, v = start(rule, 4), torch.zeros(4, requires_grad=True)
    optimiser = torch.optim.Adam([v], lr=0.05)
    torch.manual_seed(0)
    for _ in range(10):
        losses = (0.2 + torch.rand(4)).requires_grad_()
        s = v.softmax(0)
        compared = s * losses if compare == "weighted" else losses
        optimiser.zero_grad()
        (s @ losses + 0.3 * (compared[1:] - compared[:-1]).abs().sum()).backward()
        optimiser.step()
        decision = rule.update(state, observe(torch.eye(4), losses.detach()))
        state = decision.state
        torch.testing.assert_close(decision.weights, losses.grad)
        torch.testing.assert_close(state["logits"], v.detach(), atol=1e-5, rtol=1e-4)


def test_autoscale_makes_gradients_equally_long_and_then_stays():
    rule = rule_of("autoscale", 2, windows=2, window=2)
    lengths = [[1, 1], [3, 1], [1, 4], [1, 2], [5, 1], [7, 1]]  # the windows' means: (2, 1), then (1, 3)
    state, history = start(rule, 2), []
    for own in lengths:
        decision = rule.update(state, observe(torch.diag(torch.tensor(own, dtype=torch.float32))))
        state = decision.state
        history.append(decision.weights.tolist())
    first, second = [1 / 3, 2 / 3], [3 / 4, 1 / 4]
    mean = [(one + other) / 2 for one, other in zip(first, second, strict=True)]
    assert history[:2] == [[0.5, 0.5]] * 2
    assert history[2:4] == [pytest.approx(first)] * 2
    assert history[4:] == [pytest.approx(mean)] * 2
