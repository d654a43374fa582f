"""Posteriors of last layers against numpy, and moments of gradients against many draws."""

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from excessmtl.methods.last_layer import (
    Evidence,
    Posterior,
    evidence,
    exact_moments,
    posterior,
    sampled_moments,
    slopes,
)

PRIOR = 0.5
OUTPUTS = {"regression": 2, "binary": 2, "classification": 3}
LOSSES = {"regression": mse_loss, "binary": binary_cross_entropy_with_logits, "classification": cross_entropy}
each = pytest.mark.parametrize("kind", OUTPUTS)


def data(kind, samples=12, features=3, seed=0):
    """x with a column of ones, a last layer and labels, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    x = torch.cat((x, torch.ones(samples, 1, dtype=torch.float64)), 1)
    weight = torch.randn(OUTPUTS[kind], features + 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, OUTPUTS[kind], generator=generator, dtype=torch.float64)
    return x, weight, {"regression": noise, "binary": (noise > 0).double(), "classification": noise.argmax(1)}[kind]


def covariances(found):
    return torch.cholesky_inverse(found.factor)


def test_the_posterior_of_a_regression_is_that_of_bayesian_linear_regression():
    x, weight, y = data("regression")
    found = posterior(evidence("regression", x, weight, y), PRIOR)
    precision = x.numpy().T @ x.numpy() + np.eye(4) / PRIOR
    np.testing.assert_allclose(covariances(found)[0], np.linalg.inv(precision), rtol=1e-10)
    np.testing.assert_allclose(found.mean, np.linalg.solve(precision, x.numpy().T @ y.numpy()).T, rtol=1e-10)


@pytest.mark.parametrize("kind", ["binary", "classification"])
def test_the_posterior_of_a_classification_is_one_newton_step_of_its_log_density(kind):
    """Precision: the second derivative at the present weights. Mean: what Newton's method steps to from there."""
    x, weight, y = data(kind)

    def minus_log_density(flat):
        loss = LOSSES[kind](x @ flat.reshape(weight.shape).T, y, reduction="sum")
        return loss + flat.square().sum() / (2 * PRIOR)

    flat = weight.flatten().requires_grad_()
    hessian = torch.autograd.functional.hessian(minus_log_density, flat).numpy()
    (slope,) = torch.autograd.grad(minus_log_density(flat), flat)
    found = posterior(evidence(kind, x, weight, y), PRIOR)
    precision = torch.block_diag(*(found.factor @ found.factor.mT))
    np.testing.assert_allclose(precision, hessian, rtol=1e-9, atol=1e-9)
    expected = flat.detach().numpy() - np.linalg.solve(hessian, slope.numpy())
    np.testing.assert_allclose(found.mean.flatten(), expected, rtol=1e-9)


@each
def test_evidence_adds_up_over_samples_and_a_sample_of_zeros_says_nothing(kind):
    x, weight, y = data(kind)
    whole = evidence(kind, x, weight, y)
    parts = [evidence(kind, x[part], weight, y[part]) for part in (slice(5), slice(5, None))]
    emptied = evidence(kind, torch.where(torch.arange(12)[:, None] < 5, x, 0), weight, y)
    for all_of_it, first, second, alone in zip(whole, *parts, emptied, strict=True):
        torch.testing.assert_close(all_of_it, first + second)
        torch.testing.assert_close(alone, first)


@each
def test_slopes_are_those_of_the_loss_of_a_sample(kind):
    x, weight, y = data(kind)
    outputs = (x @ weight.T).requires_grad_()
    (expected,) = torch.autograd.grad(LOSSES[kind](outputs, y) * len(x), outputs)
    torch.testing.assert_close(slopes(kind, outputs.detach(), y), expected)


@each
def test_moments_are_those_of_many_draws_of_the_last_layer(kind):
    """200,000 draws by numpy from the mean and the covariance, and the gradients that each of them has."""
    x, weight, y = data(kind, samples=4, features=2)
    found = posterior(evidence(kind, x, weight, y), PRIOR)
    generator = np.random.default_rng(0)
    spread = covariances(found).expand(len(found.mean), -1, -1)
    draws = [
        generator.multivariate_normal(m, s, 200_000) for m, s in zip(found.mean.numpy(), spread.numpy(), strict=True)
    ]
    layers = torch.as_tensor(np.stack(draws, 1)).reshape(200_000, OUTPUTS[kind], 3)
    gradients = slopes(kind, x @ layers.mT, y) @ layers[..., :2]
    if kind == "regression":
        moments = exact_moments(found, x, y, 2)
    else:
        moments = sampled_moments(kind, found, x, y, 2, 100_000, torch.Generator().manual_seed(1))
    error = gradients.std(0) / 200_000**0.5
    assert ((moments.mean - gradients.mean(0)).abs() < 6 * error).all()
    torch.testing.assert_close(moments.variance, gradients.var(0), rtol=0.04, atol=1e-6)


def test_a_last_layer_that_is_known_has_the_plain_gradient_and_no_variance():
    x, weight, y = data("regression")
    sure = Posterior(weight, 1e9 * torch.eye(4, dtype=torch.float64)[None])
    moments = exact_moments(sure, x, y, 3)
    torch.testing.assert_close(moments.mean, slopes("regression", x @ weight.T, y) @ weight[:, :3])
    assert moments.variance.max() < 1e-12


def test_sampled_moments_do_not_depend_on_how_many_draws_are_looked_at_at_once(monkeypatch):
    x, weight, y = data("classification")
    found = posterior(Evidence(*evidence("classification", x, weight, y)), PRIOR)
    whole = sampled_moments("classification", found, x, y, 3, 50, torch.Generator().manual_seed(1))
    monkeypatch.setattr("excessmtl.methods.last_layer._AT_ONCE", 7 * 12 * 3)
    parts = sampled_moments("classification", found, x, y, 3, 50, torch.Generator().manual_seed(1))
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)
