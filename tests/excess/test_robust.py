"""The default ExcessMTL against numbers worked out by hand, and what it must never do."""

import math

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl.excess.robust import RobustExcess, _simplex


def weights(rule, risks, initial, norms, shares=None, heads=True):
    """`shares`: excess risk over risk; None: not known yet, which is 0."""
    shares = [0.0] * len(risks) if shares is None else shares
    values = [torch.tensor(value, dtype=torch.float32) for value in (risks, shares, initial, norms)]
    return _simplex((rule._with_heads if heads else rule._without_heads)(*values), values[3] <= 0)


def test_nobody_is_starved_by_what_is_left_of_the_loss():
    found = weights(RobustExcess(), [0.0, 1.0], [1.0, 1.0], [1.0, 1.0])
    assert found[0] / found[1] == pytest.approx(math.exp(1.5), rel=1e-4)


def test_a_task_that_is_satisfied_at_first_does_not_crowd_out_the_others():
    nothing = weights(RobustExcess(), [0.5, 0.0, 0.5], [1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    torch.testing.assert_close(nothing, torch.full((3,), 1 / 3))
    almost = weights(RobustExcess(), [1.0, 1.0], [1.0, 1e-10], [1.0, 1.0])
    assert almost[0] / almost[1] == pytest.approx(math.exp(1.5) * math.sqrt(0.5), rel=1e-4)


def test_losses_that_begin_at_zero_or_below_are_weighed_by_their_gradients():
    found = weights(RobustExcess(), [-5.0, -2.0], [-1.0, 0.0], [1.0, 3.0])
    torch.testing.assert_close(found, torch.tensor([0.75, 0.25]))


def test_a_task_nothing_is_known_of_gets_the_mean_of_the_others():
    found = weights(RobustExcess(), [0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 9.0, 0.0])
    assert found[2] == pytest.approx((found[0] + found[1]).item() / 2)
    assert weights(RobustExcess(), [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]).tolist() == [0.5, 0.5]


def test_without_heads_losses_are_in_one_unit_and_trust_counts_a_third():
    found = weights(RobustExcess(), [0.2, 1.0], [1.0, 3.0], [5.0, 1.0], heads=False)
    raw = [math.exp(-0.5 * 0.2 / 2), math.exp(-0.5 * 1.0 / 2)]
    torch.testing.assert_close(found, torch.tensor(raw) / sum(raw))


def test_likelihoods_are_named_in_any_way_and_a_stranger_among_them_is_refused():
    shared = nn.Linear(2, 2)
    for given in (["b"], {"b"}, ("b",), (False, True), {"b": True}):
        assert excessmtl.create("excess", ["a", "b"], shared, likelihoods=given).rule.likelihoods == (False, True)
    strict = RobustExcess(trust=1e4, likelihoods=(True, False, False))
    assert weights(strict, [1.0, 1.0, 0.9], [1.0] * 3, [1.0] * 3).tolist() == pytest.approx([1 / 3, 0, 2 / 3])
    of_two_units = RobustExcess(trust=1e4, likelihoods=("own", False, True, "own"))
    found = weights(of_two_units, [1.0] * 4, [1.0, 1.0, 1.0, 4.0], [1.0, 1.0, 1.0, 4.0])
    assert found.tolist() == pytest.approx([4 / 13, 4 / 13, 4 / 13, 1 / 13])
    for wrong in (["c"], "b", (True,), {"c": "own"}, {"a": "alone"}):
        with pytest.raises(
            ValueError, match=r"likelihoods must be a list of tasks, found .*; the tasks are \['a', 'b'\]"
        ):
            excessmtl.create("excess", ["a", "b"], shared, likelihoods=wrong)


def train(units, batch, steps=60, seed=0, noise=0.0, learning_rate=1e-2, second_from=0):
    """Two tasks made by one teacher, targets multiplied by `units`; every step. The second may come later."""
    torch.manual_seed(seed)
    trunk, heads = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), {task: nn.Linear(16, 1) for task in "ab"}
    balancer = excessmtl.create("excess", tasks=["a", "b"], shared=trunk)
    optimiser = torch.optim.Adam([*trunk.parameters(), *(p for head in heads.values() for p in head.parameters())])
    optimiser.param_groups[0]["lr"] = learning_rate
    generator = torch.Generator().manual_seed(seed)
    teacher = torch.randn(8, 2, generator=generator) / 3
    history = []
    for _ in range(steps):
        x = torch.randn(batch, 8, generator=generator)
        y = torch.tanh(x @ teacher)
        y[:, 1] += noise * torch.randn(batch, generator=generator)
        optimiser.zero_grad()
        z = trunk(x)
        losses = {t: (heads[t](z).squeeze(1) - y[:, i]).square().mean() * units[i] for i, t in enumerate("ab")}
        history.append(balancer.backward(losses if len(history) >= second_from else {"a": losses["a"]}))
        optimiser.step()
    return history


def test_the_unit_of_a_loss_makes_no_difference():
    plain = train((1.0, 1.0), batch=32, steps=1)[0]
    scaled = train((1.0, 1e4), batch=32, steps=1)[0]
    applied = [step.weights * torch.tensor(units) for step, units in ((plain, (1, 1)), (scaled, (1, 1e4)))]
    torch.testing.assert_close(applied[0] / applied[0].sum(), applied[1] / applied[1].sum(), rtol=1e-4, atol=0)
    assert scaled.excess_risks[1] / plain.excess_risks[1] == pytest.approx(1e4, rel=1e-3)


@pytest.mark.parametrize("batch", [2, 4, 8])
def test_tiny_batches_do_not_starve_a_clean_task(batch):
    for seed in range(10):
        smallest = torch.stack([step.weights for step in train((1.0, 1.0), batch, steps=10, seed=seed)]).min()
        assert smallest > 0.05


def test_a_clean_task_that_comes_late_is_not_starved():
    """Its progress is compared at its own age: it gets what a task has that was there from the start."""
    late = train((1.0, 1.0), batch=32, steps=120, second_from=60)
    throughout = train((1.0, 1.0), batch=32, steps=120)
    after = [torch.stack([step.weights[1] for step in history[60:]]).mean() for history in (late, throughout)]
    assert after[0] > 0.8 * after[1]
    assert late[-1].losses[1] < 3 * throughout[-1].losses[1] + 0.01


def test_noise_lowers_a_weight_within_bounds():
    quiet = train((1.0, 1.0), batch=32, steps=300)[-1].weights[1]
    loud = train((1.0, 1.0), batch=32, steps=300, noise=1.0)[-1].weights[1]
    assert 0.001 < loud < 0.2 * quiet


@pytest.mark.parametrize("second", [1.0, -1.0])  # the mean over the samples is large, or zero
def test_a_gradient_whose_square_overflows_does_not_stay_in_the_averages(second):
    trunk, heads = nn.Linear(2, 2, bias=False), {task: nn.Linear(2, 1) for task in "ab"}
    balancer = excessmtl.create("excess", ["a", "b"], trunk)
    nn.init.constant_(heads["a"].weight, 1e5)
    for scale in (1.0, 1e15, 1.0):  # z; the gradient at the adapter is 1e20, the loss and every other gradient less
        z = trunk(scale * torch.tensor([1.0, second]).expand(2, 2).T)
        outputs = {task: head(z) for task, head in heads.items()}
        step = balancer.backward({task: 1 + (output - output.detach()).mean() for task, output in outputs.items()})
    assert all(value.isfinite().all() for value in balancer.state.values())
    assert balancer.state["observed"].tolist() == [2, 3]
    assert step.weights.isfinite().all()


def test_excess_risk_of_a_linear_problem():
    """Known truth: y = z + noise, the head is off by d and z is a sign: the excess risk is d^2, whatever the noise."""
    generator = torch.Generator().manual_seed(0)
    for noise in (0.5, 2.0):
        trunk, head = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        nn.init.ones_(trunk.weight)
        nn.init.constant_(head.weight, 1.3)
        balancer = excessmtl.create("excess", tasks=["a"], shared=trunk, decay=0.999)
        for _ in range(600):
            x = torch.randint(0, 2, (256, 1), generator=generator) * 2.0 - 1
            y = x + noise * torch.randn(256, 1, generator=generator)
            step = balancer.backward({"a": (head(trunk(x)) - y).square().mean()})
        assert step.excess_risks.item() == pytest.approx(0.09, rel=0.15)


@pytest.mark.parametrize("start", [0.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_two_clean_tasks_that_share_every_parameter_stay_balanced(start, seed):
    generator = torch.Generator().manual_seed(seed)
    wanted = torch.randn(2, 5, generator=generator)
    model = nn.Linear(5, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(start * torch.randn(1, 5, generator=generator))
    balancer = excessmtl.create("excess", tasks=["a", "b"], shared=model, scale="mean")
    optimiser = torch.optim.SGD(model.parameters(), 0.05)
    found = []
    for _ in range(250):
        inputs = torch.randn(32, 5, generator=generator)
        outputs = model(inputs)[:, 0]
        optimiser.zero_grad()
        losses = {name: (outputs - inputs @ one).square().mean() for name, one in zip("ab", wanted, strict=True)}
        found.append(balancer.backward(losses).weights)
        optimiser.step()
    assert torch.stack(found[-100:]).mean(0)[0].item() == pytest.approx(0.5, abs=0.08)


def test_on_figure_1_of_the_paper_it_ends_between_uniform_weights_and_equal_excess_risks():
    conceptual = pytest.importorskip("excessmtl.lab.paper.figures.conceptual")
    problem = conceptual.two_tasks()
    balanced = problem.balanced(problem.floors)
    _, found = conceptual.train(problem, "excess", {}, 700, seed=0)
    assert balanced < found[-300:, 0].mean() < 0.5
