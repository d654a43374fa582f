"""`estimator="paper"` against Algorithm 1 written down once more in NumPy, by hand, without autograd."""

import numpy as np
import pytest
import torch
from torch import nn

import excessmtl

LEARNING_RATE, STEP_SIZE = 0.05, 0.1


class NumpyAlgorithm1:
    """A tanh layer shared by two squared-error heads, trained by Algorithm 1 with gradients derived by hand."""

    def __init__(self, weight, bias, heads, normalize="none", warmup=0):
        self.weight, self.bias = weight.copy(), bias.copy()
        self.heads = [(w.copy(), b.copy()) for w, b in heads]
        self.squares = [np.zeros(weight.size + bias.size) for _ in heads]
        self.alpha = np.full(len(heads), 1 / len(heads))
        self.normalize, self.warmup, self.history = normalize, warmup, []

    def step(self, x, targets):
        z = np.tanh(x @ self.weight.T + self.bias)
        gradients, heads = [], []
        for (w, b), y in zip(self.heads, targets, strict=True):
            residual = z @ w.T + b - y
            d_out = 2 * residual / residual.size
            heads.append((d_out.T @ z, d_out.sum(0)))
            d_pre = (d_out @ w) * (1 - z**2)
            gradients.append(np.concatenate([(d_pre.T @ x).ravel(), d_pre.sum(0)]))
        risks = np.zeros(len(self.heads))
        for i, g in enumerate(gradients):
            self.squares[i] += g * g
            risks[i] = np.sum(g * g / (np.sqrt(self.squares[i]) + 1e-12))
        self.history.append(risks)
        if self.normalize == "none":
            self.alpha = self.alpha * np.exp(STEP_SIZE * risks)
        elif len(self.history) > self.warmup:
            initial = np.mean(self.history[: max(self.warmup, 1)], axis=0)
            self.alpha = self.alpha * np.exp(STEP_SIZE * risks / initial)
        self.alpha = self.alpha / self.alpha.sum()
        total = sum(a * g for a, g in zip(self.alpha, gradients, strict=True))
        self.weight -= LEARNING_RATE * total[: self.weight.size].reshape(self.weight.shape)
        self.bias -= LEARNING_RATE * total[self.weight.size :]
        self.heads = [
            (w - LEARNING_RATE * dw, b - LEARNING_RATE * db) for (w, b), (dw, db) in zip(self.heads, heads, strict=True)
        ]
        return risks


@pytest.mark.parametrize(("normalize", "warmup"), [("none", 0), ("initial", 0), ("initial", 10)])
def test_fifty_steps_equal_numpy(normalize, warmup):
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
    heads = [nn.Linear(16, 1), nn.Linear(16, 3)]
    oracle = NumpyAlgorithm1(
        trunk[0].weight.detach().double().numpy(),
        trunk[0].bias.detach().double().numpy(),
        [(h.weight.detach().double().numpy(), h.bias.detach().double().numpy()) for h in heads],
        normalize,
        warmup,
    )
    options = {"step_size": STEP_SIZE, "normalize": normalize, "warmup_steps": warmup}
    balancer = excessmtl.ExcessMTL(["a", "b"], trunk, estimator="paper", scale="mean", **options)
    parameters = [*trunk.parameters(), *heads[0].parameters(), *heads[1].parameters()]
    optimiser = torch.optim.SGD(parameters, lr=LEARNING_RATE)
    rng = np.random.default_rng(1)
    for _ in range(50):
        x = rng.normal(size=(32, 6)).astype(np.float32)
        targets = [np.sin(x[:, :1]), rng.normal(size=(32, 3)).astype(np.float32)]  # the second is pure noise
        risks = oracle.step(x.astype(np.float64), targets)
        optimiser.zero_grad()
        z = trunk(torch.from_numpy(x))
        losses = {
            name: nn.functional.mse_loss(head(z), torch.from_numpy(y))
            for name, head, y in zip("ab", heads, targets, strict=True)
        }
        step = balancer.backward(losses)
        optimiser.step()
        np.testing.assert_allclose(step.weights.numpy(), oracle.alpha, rtol=1e-5)
        np.testing.assert_allclose(step.excess_risks.numpy(), risks, rtol=1e-5)
        np.testing.assert_allclose(trunk[0].weight.detach().numpy(), oracle.weight, atol=1e-5)
        for head, (w, b) in zip(heads, oracle.heads, strict=True):
            np.testing.assert_allclose(head.weight.detach().numpy(), w, atol=1e-5)
            np.testing.assert_allclose(head.bias.detach().numpy(), b, atol=1e-5)
    assert abs(oracle.alpha[0] - 0.5) > 1e-3  # the comparison is about something


def one_problem():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(5, 7), nn.Tanh())
    head = nn.Linear(7, 1)
    return trunk, head


def test_first_excess_risk_is_the_l1_norm_of_the_gradient():
    trunk, head = one_problem()
    balancer = excessmtl.ExcessMTL(["a"], trunk, estimator="paper")
    step = balancer.backward({"a": head(trunk(torch.randn(9, 5))).square().mean()})
    l1 = sum(parameter.grad.abs().sum() for parameter in trunk.parameters())
    torch.testing.assert_close(step.excess_risks[0], l1, rtol=1e-5, atol=0)


@pytest.mark.parametrize("probe", ["all", "representation"])
def test_relative_risk_does_not_depend_on_the_scale_of_a_loss(probe):
    weights = []
    for factor in (1.0, 1e4):
        trunk, head = one_problem()
        other = nn.Linear(7, 1)
        nn.init.constant_(other.weight, 0.1)
        options = {"probe": probe, "normalize": "initial", "step_size": 1.0}
        balancer = excessmtl.ExcessMTL(["a", "b"], trunk, estimator="paper", scale="mean", **options)
        generator = torch.Generator().manual_seed(3)
        for _ in range(5):
            z = trunk(torch.randn(9, 5, generator=generator))
            losses = {"a": factor * head(z).square().mean(), "b": (other(z) - 1).square().mean()}
            step = balancer.backward(losses)
        weights.append(step.weights)
    torch.testing.assert_close(weights[0], weights[1])
    assert (weights[0] - 0.5).abs().max() > 1e-3


def test_stationary_gradients_make_the_estimate_fall_like_one_over_root_t():
    weight = torch.nn.Parameter(torch.tensor([2.0, -3.0]))
    balancer = excessmtl.ExcessMTL(["a"], [weight], estimator="paper")
    constant = torch.tensor([0.5, 1.5])
    risks = [balancer.backward({"a": (weight * constant).sum()}).excess_risks.item() for _ in range(100)]
    assert risks[99] / risks[0] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.filterwarnings("ignore:.*is the whole model")  # each parameter is used by one task alone, on purpose
def test_weights_stay_finite_where_a_plain_exponential_overflows():
    weight = torch.nn.Parameter(torch.ones(1_000_000))
    other = torch.nn.Parameter(torch.ones(1))
    balancer = excessmtl.ExcessMTL(["a", "b"], [weight, other], estimator="paper", scale="mean", step_size=1.0)
    for _ in range(3):
        step = balancer.backward({"a": weight.sum(), "b": other.sum()})
    assert torch.isfinite(step.weights).all()
    assert step.weights[0] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "robust", "step_size": 0.1}, "step_size is not an option of estimator='robust'"),
        ({"estimator": "robust", "normalize": "initial"}, "normalize is not an option"),
        ({"estimator": "robust", "probe": "all"}, "probe must be one of"),
        ({"estimator": "papre"}, "estimator must be one of"),
        ({"estimator": "paper", "warmup_steps": 3}, "needs normalize='initial'"),
        ({"estimator": "paper", "step_size": 0.0}, "step_size must be positive"),
        ({"decay": 1.0}, "decay must be"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    trunk, _ = one_problem()
    with pytest.raises(ValueError, match=message):
        excessmtl.ExcessMTL(["a", "b"], trunk, **options)
