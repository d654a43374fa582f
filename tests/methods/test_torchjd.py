"""TorchJD as an oracle, on random matrices, for the methods both have."""

import pytest
import torch
from observing import observe, rule_of, start, weights_of

aggregation = pytest.importorskip("torchjd.aggregation")
scalarization = pytest.importorskip("torchjd.scalarization")


def draw(seed, tasks):
    torch.manual_seed(seed)
    return torch.randn(tasks, 3 * tasks) * (1 + 3 * torch.rand(tasks, 1))


def optional(name, **options):
    try:
        return getattr(aggregation, name)(**options)
    except ImportError as missing:
        pytest.skip(f"TorchJD's {name} needs packages that are not installed: {missing}")


# Ours, theirs, and how near, relative to the length of the step. Theirs adds 1e-4 to the diagonal of a cone's matrix.
STEPS = [
    ("mgda", {}, "MGDA", {"epsilon": 1e-7, "max_iters": 3000}, 1e-2),
    ("imtl", {}, "IMTLG", {}, 1e-3),
    ("cagrad", {"rescale": 0}, "CAGrad", {"c": 0.4}, 1e-2),
    ("aligned_mtl", {}, "AlignedMTL", {}, 3e-3),
    ("aligned_mtl", {"size": "median"}, "AlignedMTL", {"scale_mode": "median"}, 3e-3),
    ("aligned_mtl", {"size": "rmse"}, "AlignedMTL", {"scale_mode": "rmse"}, 3e-3),
    ("config", {}, "ConFIG", {}, 3e-3),
    ("upgrad", {}, "UPGrad", {}, 3e-3),
    ("dualproj", {}, "DualProj", {}, 3e-3),
    ("fairgrad", {"alpha": 2.0, "max_norm": None}, "FairGrad", {"alpha": 2.0}, 3e-3),
    ("pcd", {}, "PCD", {}, 3e-3),
    ("pcd", {"tau": 0.5}, "PCD", {"tau": 0.5}, 3e-3),
]


@pytest.mark.parametrize(("name", "options", "theirs", "their_options", "near"), STEPS, ids=str)
def test_the_steps_are_theirs(name, options, theirs, their_options, near):
    for tasks in (2, 3, 6):
        aggregator = optional(theirs, **their_options)
        for seed in range(5):
            gradients = draw(seed, tasks)
            if theirs == "PCD":
                aggregator.reset()
            found, expected = weights_of(name, gradients, **options) @ gradients, aggregator(gradients)
            torch.testing.assert_close(found, expected, atol=near * expected.norm().item(), rtol=0)
            if name == "mgda":
                assert found.norm() <= expected.norm() * (1 + 1e-6)


@pytest.mark.parametrize("tasks", [2, 5])
def test_nash(tasks):
    for seed in range(10):
        theirs = optional("NashMTL", n_tasks=tasks, max_norm=0.0, optim_niter=100)
        gradients = draw(seed, tasks)
        found = weights_of("nash", gradients, max_norm=None) @ gradients
        assert torch.cosine_similarity(found, theirs(gradients), dim=0) > 0.99


# With two tasks the order, which is drawn, does not matter.
OVER_STEPS = [
    ("pcgrad", 2, {}, "PCGradWeighting", {}),
    ("gradvac", 2, {"rate": 0.3}, "GradVacWeighting", {"beta": 0.3}),
    ("modo", 3, {"step_size": 0.01, "rho": 0.1}, "MoDoWeighting", {"gamma": 0.01, "rho": 0.1}),
    ("sdmgrad", 3, {"step_size": 0.3}, "SDMGradWeighting", {"lr": 0.1, "lambda_": 0.3}),
]


@pytest.mark.parametrize(("name", "tasks", "options", "theirs", "their_options"), OVER_STEPS, ids=str)
def test_the_weights_of_several_steps_are_theirs(name, tasks, options, theirs, their_options):
    """From the products of one batch's gradients, or of two."""
    theirs, rule = getattr(aggregation, theirs)(**their_options), rule_of(name, tasks, **options)
    state = start(rule, tasks)
    for seed in range(10):
        first, second = draw(seed, tasks), draw(100 + seed, tasks)
        products, gradients = (first @ second.T, second) if tasks == 3 else (first @ first.T, first)
        decision = rule.update(state, observe(gradients, **({"cross": products} if tasks == 3 else {})))
        state, expected = decision.state, theirs(products)
        if tasks == 3 and expected.sum() > 1.01:  # their projection leaves the simplex where one task has all weight
            break
        torch.testing.assert_close(decision.weights, expected, atol=1e-4, rtol=1e-3)
    assert seed >= 3


def test_pcd_over_steps():
    theirs, rule = aggregation.PCD(beta=0.5), rule_of("pcd", 3, decay=0.5)
    state = start(rule, 3)
    for seed in range(10):
        gradients = draw(seed, 3)
        decision = rule.update(state, observe(gradients))
        state = decision.state
        torch.testing.assert_close(decision.weights @ gradients, theirs(gradients), atol=1e-3, rtol=1e-3)


def test_trimmed_mean():
    for seed in range(10):
        gradients = draw(seed, 5)
        decision = rule_of("trimmed_mean", 5).update({}, observe(gradients))
        torch.testing.assert_close(decision.direction, aggregation.TrimmedMean(1)(gradients))
        assert decision.weights.sum() == pytest.approx(1)


# ------------------------------------------------------------------ losses alone: their gradient by the losses


SCALARIZERS = {
    "uw": lambda: scalarization.UW(3),
    "imtl_l": lambda: scalarization.IMTLL(3),
    "dwa": lambda: scalarization.DWA(temperature=2.0),
    "famo": lambda: scalarization.FAMO(3, weight_decay=1e-3),
}


@pytest.mark.parametrize("name", SCALARIZERS)
def test_learned_and_remembered_weights(name):
    """UW and IMTL-L are trained with torch's Adam at the same rate; DWA has epochs of four steps."""
    scalarizer = SCALARIZERS[name]()
    parameters = list(scalarizer.parameters()) if name in ("uw", "imtl_l") else []
    optimiser = torch.optim.Adam(parameters, lr=0.025) if parameters else None
    rule = rule_of(name, 3)
    state = start(rule, 3)
    torch.manual_seed(0)
    for step in range(30):
        losses = (0.1 + 4 * torch.rand(3)).requires_grad_()
        if optimiser:
            optimiser.zero_grad()
        scalarizer(losses).backward()
        decision = rule.update(state, observe(torch.eye(3), losses.detach()))
        state = decision.state
        torch.testing.assert_close(decision.weights, losses.grad, atol=1e-5, rtol=1e-4)
        if optimiser:
            optimiser.step()
        elif name == "famo":
            after = 0.1 + torch.rand(3)
            scalarizer.update(after)
            state = rule.after_step(state, after, torch.ones(3, dtype=torch.bool))
        elif step % 4 == 3:
            scalarizer.step()
            state = rule.end_epoch(state)


PREFERENCE = [0.2, 0.3, 0.5]


@pytest.mark.parametrize(
    ("name", "options", "theirs"),
    [
        ("gls", {}, lambda: scalarization.GeometricMean()),
        ("cosmos", {"penalty": 0.7}, lambda: scalarization.COSMOS(lambda_=0.7, weights=torch.tensor(PREFERENCE))),
        ("pbi", {"theta": 0.7}, lambda: scalarization.PBI(theta=0.7, weights=torch.tensor(PREFERENCE))),
    ],
    ids=["gls", "cosmos", "pbi"],
)
def test_objectives(name, options, theirs):
    options = options and {**options, "preference": PREFERENCE}
    for seed in range(10):
        torch.manual_seed(seed)
        losses = torch.rand(3).requires_grad_()
        theirs().to(losses)(losses).backward()
        found = weights_of(name, torch.eye(3), losses.detach(), **options)
        torch.testing.assert_close(found, losses.grad, atol=1e-4, rtol=1e-3)


def test_stch_after_its_warm_up():
    """Theirs is the general form, of f = log(l / n) with weights of one."""
    theirs, rule = scalarization.STCH(mu=0.5, weights=torch.ones(3)), rule_of("stch", 3, warmup_epochs=0, mu=0.5)
    before = torch.tensor([1.0, 2.0, 0.5])
    state = rule.end_epoch(rule.update(start(rule, 3), observe(torch.eye(3), before)).state)
    losses = torch.tensor([0.3, 0.9, 0.4], requires_grad=True)
    (3 * theirs((losses / before).log())).backward()
    torch.testing.assert_close(rule.update(state, observe(torch.eye(3), losses.detach())).weights, losses.grad)
