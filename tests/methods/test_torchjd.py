"""TorchJD as an oracle, on random matrices, for the methods both have."""

import pytest
import torch
from observing import observe, rule_of, start, weights_of

aggregation = pytest.importorskip("torchjd.aggregation")
scalarization = pytest.importorskip("torchjd.scalarization")
SEEDS = range(10)


def draw(seed, tasks):
    torch.manual_seed(seed)
    return torch.randn(tasks, 3 * tasks) * (1 + 3 * torch.rand(tasks, 1))


def optional(name, *arguments, **options):
    try:
        return getattr(aggregation, name)(*arguments, **options)
    except ImportError as missing:
        pytest.skip(f"TorchJD's {name} needs packages that are not installed: {missing}")


@pytest.mark.parametrize("tasks", [2, 3, 6])
def test_mgda(tasks):
    theirs = aggregation.MGDAWeighting(epsilon=1e-7, max_iters=3000)
    for seed in SEEDS:
        gradients = draw(seed, tasks)
        expected = theirs(gradients @ gradients.T)
        found = weights_of("mgda", gradients)
        assert (found @ gradients).norm() <= (expected @ gradients).norm() * (1 + 1e-6)
        torch.testing.assert_close(found, expected, atol=1e-2, rtol=0)


@pytest.mark.parametrize("tasks", [2, 3, 6])
def test_imtl(tasks):
    for seed in SEEDS:
        gradients = draw(seed, tasks)
        expected = aggregation.IMTLGWeighting()(gradients @ gradients.T)
        torch.testing.assert_close(weights_of("imtl", gradients), expected, atol=1e-4, rtol=1e-3)


def test_pcgrad_with_two_tasks_where_order_is_no_matter():
    for seed in SEEDS:
        gradients = draw(seed, 2)
        expected = aggregation.PCGradWeighting()(gradients @ gradients.T)
        torch.testing.assert_close(weights_of("pcgrad", gradients), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tasks", [2, 5])
def test_cagrad(tasks):
    theirs = optional("CAGrad", c=0.4)
    for seed in SEEDS:
        gradients = draw(seed, tasks)
        found = weights_of("cagrad", gradients, rescale=0) @ gradients
        torch.testing.assert_close(found, theirs(gradients), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("tasks", [2, 5])
def test_nash(tasks):
    for seed in SEEDS:
        theirs = optional("NashMTL", n_tasks=tasks, max_norm=0.0, optim_niter=100)
        gradients = draw(seed, tasks)
        found = weights_of("nash", gradients, max_norm=None) @ gradients
        assert torch.cosine_similarity(found, theirs(gradients), dim=0) > 0.99


@pytest.mark.parametrize(("name", "theirs"), [("uw", "UW"), ("imtl_l", "IMTLL")])
def test_learned_scales(name, theirs):
    """Trained with torch's Adam at the same rate, their scalarization has our weights as its gradient."""
    scalarizer = getattr(scalarization, theirs)(3)
    optimiser = torch.optim.Adam(scalarizer.parameters(), lr=0.025)
    rule = rule_of(name, 3)
    state = start(rule, 3)
    torch.manual_seed(0)
    for _ in range(30):
        losses = (4 * torch.rand(3)).requires_grad_()
        optimiser.zero_grad()
        scalarizer(losses).backward()
        optimiser.step()
        decision = rule.update(state, observe(torch.eye(3), losses.detach()))
        state = decision.state
        torch.testing.assert_close(decision.weights, losses.grad, atol=1e-4, rtol=1e-4)


def test_dwa():
    scalarizer, rule = scalarization.DWA(temperature=2.0), rule_of("dwa", 3)
    state = start(rule, 3)
    torch.manual_seed(0)
    for _ in range(5):
        for _ in range(4):
            losses = (1 + torch.rand(3)).requires_grad_()
            scalarizer(losses).backward()
            decision = rule.update(state, observe(torch.eye(3), losses.detach()))
            state = decision.state
            torch.testing.assert_close(decision.weights, losses.grad)
        scalarizer.step()
        state = rule.end_epoch(state)


def test_famo():
    scalarizer, rule = scalarization.FAMO(3, weight_decay=1e-3), rule_of("famo", 3)
    state = start(rule, 3)
    torch.manual_seed(0)
    for _ in range(20):
        losses, after = (0.1 + torch.rand(3)).requires_grad_(), 0.1 + torch.rand(3)
        scalarizer(losses).backward()
        decision = rule.update(state, observe(torch.eye(3), losses.detach()))
        torch.testing.assert_close(decision.weights, losses.grad, atol=1e-5, rtol=1e-4)
        scalarizer.update(after)
        state = rule.after_step(decision.state, after, torch.ones(3, dtype=torch.bool))


def test_gls():
    for seed in SEEDS:
        torch.manual_seed(seed)
        losses = torch.rand(4).requires_grad_()
        scalarization.GeometricMean()(losses).backward()
        torch.testing.assert_close(weights_of("gls", torch.eye(4), losses.detach()), losses.grad, atol=0, rtol=1e-4)


def test_stch_after_its_warm_up():
    """Theirs is the general form, of f = log(l / n) with weights of one."""
    theirs, rule = scalarization.STCH(mu=0.5, weights=torch.ones(3)), rule_of("stch", 3, warmup_epochs=0, mu=0.5)
    before = torch.tensor([1.0, 2.0, 0.5])
    state = rule.end_epoch(rule.update(start(rule, 3), observe(torch.eye(3), before)).state)
    losses = torch.tensor([0.3, 0.9, 0.4], requires_grad=True)
    (3 * theirs((losses / before).log())).backward()
    torch.testing.assert_close(rule.update(state, observe(torch.eye(3), losses.detach())).weights, losses.grad)


@pytest.mark.parametrize("tasks", [2, 3, 6])
@pytest.mark.parametrize(
    ("name", "options", "theirs", "their_options"),
    [
        ("aligned_mtl", {}, "AlignedMTL", {}),
        ("aligned_mtl", {"size": "median"}, "AlignedMTL", {"scale_mode": "median"}),
        ("aligned_mtl", {"size": "rmse"}, "AlignedMTL", {"scale_mode": "rmse"}),
        ("config", {}, "ConFIG", {}),
        ("upgrad", {}, "UPGrad", {}),
        ("dualproj", {}, "DualProj", {}),
        ("fairgrad", {"alpha": 2.0, "max_norm": None}, "FairGrad", {"alpha": 2.0}),
        ("pcd", {}, "PCD", {}),
        ("pcd", {"tau": 0.5}, "PCD", {"tau": 0.5}),
    ],
    ids=str,
)
def test_the_steps_are_theirs(name, options, theirs, their_options, tasks):
    aggregator = optional(theirs, **their_options)
    for seed in range(5):
        gradients = draw(seed, tasks)
        if theirs == "PCD":
            aggregator.reset()
        found = weights_of(name, gradients, **options) @ gradients
        expected = aggregator(gradients)
        # Theirs adds 1e-4 to the diagonal where it projects onto a cone.
        torch.testing.assert_close(found, expected, atol=3e-3 * expected.norm().item(), rtol=0)


def test_trimmed_mean():
    for seed in SEEDS:
        gradients = draw(seed, 5)
        rule = rule_of("trimmed_mean", 5)
        decision = rule.update({}, observe(gradients))
        torch.testing.assert_close(decision.direction, aggregation.TrimmedMean(1)(gradients))
        assert decision.weights.sum() == pytest.approx(1)


def test_pcd_over_steps():
    theirs, rule = aggregation.PCD(beta=0.5), rule_of("pcd", 3, decay=0.5)
    state = start(rule, 3)
    for seed in SEEDS:
        gradients = draw(seed, 3)
        decision = rule.update(state, observe(gradients))
        state = decision.state
        torch.testing.assert_close(decision.weights @ gradients, theirs(gradients), atol=1e-3, rtol=1e-3)


def test_gradvac_with_two_tasks_where_order_is_no_matter():
    theirs, rule = aggregation.GradVacWeighting(beta=0.3), rule_of("gradvac", 2, rate=0.3)
    state = start(rule, 2)
    for seed in SEEDS:
        gradients = draw(seed, 2)
        decision = rule.update(state, observe(gradients))
        state = decision.state
        torch.testing.assert_close(decision.weights, theirs(gradients @ gradients.T), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "theirs", "their_options"),
    [
        ("modo", {"step_size": 0.01, "rho": 0.1}, "MoDoWeighting", {"gamma": 0.01, "rho": 0.1}),
        ("sdmgrad", {"step_size": 0.3}, "SDMGradWeighting", {"lr": 0.1, "lambda_": 0.3}),
    ],
)
def test_weights_from_two_batches(name, options, theirs, their_options):
    theirs, rule = getattr(aggregation, theirs)(**their_options), rule_of(name, 3, **options)
    state = start(rule, 3)
    for seed in SEEDS:
        first, second = draw(seed, 3), draw(100 + seed, 3)
        decision = rule.update(state, observe(second, cross=first @ second.T))
        state = decision.state
        expected = theirs(first @ second.T)
        if expected.sum() > 1.01:  # their projection leaves the simplex where one task has all the weight
            break
        torch.testing.assert_close(decision.weights, expected, atol=1e-4, rtol=1e-3)
    assert seed >= 3


@pytest.mark.parametrize(("name", "theirs"), [("cosmos", "COSMOS"), ("pbi", "PBI")])
def test_preferences(name, theirs):
    preference = torch.tensor([0.2, 0.3, 0.5])
    option = {"cosmos": {"lambda_": 0.7}, "pbi": {"theta": 0.7}}[name]
    for seed in SEEDS:
        torch.manual_seed(seed)
        losses = torch.rand(3).requires_grad_()
        getattr(scalarization, theirs)(**option, weights=preference).to(losses)(losses).backward()
        mine = {"cosmos": "penalty", "pbi": "theta"}[name]
        found = weights_of(name, torch.eye(3), losses.detach(), preference=preference.tolist(), **{mine: 0.7})
        torch.testing.assert_close(found, losses.grad, atol=1e-4, rtol=1e-3)
