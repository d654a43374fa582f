"""The posterior of a binary last layer, and the moments of its gradients; `oracles/bayesian.py` has the other kinds."""

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from excessmtl.methods.last_layer import evidence, posterior, sampled_moments, slopes

PRIOR, OUTPUTS, DRAWS = 0.5, 2, 100_000


def data(samples, features):
    """x with a column of ones, a last layer and labels, in double precision."""
    torch.manual_seed(0)
    x = torch.cat((torch.randn(samples, features), torch.ones(samples, 1)), 1).double()
    return x, torch.randn(OUTPUTS, features + 1).double(), (torch.randn(samples, OUTPUTS) > 0).double()


def test_the_posterior_is_one_newton_step_of_its_log_density():
    """Precision: the second derivative at the present weights. Mean: what Newton's method steps to from there."""
    x, weight, y = data(12, 3)

    def minus_log_density(flat):
        loss = binary_cross_entropy_with_logits(x @ flat.reshape(weight.shape).T, y, reduction="sum")
        return loss + flat.square().sum() / (2 * PRIOR)

    flat = weight.flatten().requires_grad_()
    hessian = torch.autograd.functional.hessian(minus_log_density, flat).numpy()
    (slope,) = torch.autograd.grad(minus_log_density(flat), flat)
    computed = posterior(evidence("binary", x, weight, y), PRIOR)
    precision = torch.block_diag(*(computed.factor @ computed.factor.mT))
    np.testing.assert_allclose(precision, hessian, rtol=1e-9, atol=1e-9)
    expected = flat.detach().numpy() - np.linalg.solve(hessian, slope.numpy())
    np.testing.assert_allclose(computed.mean.flatten(), expected, rtol=1e-9)


def test_moments_are_those_of_many_draws_of_the_last_layer():
    """Draws by numpy from the mean and the covariance, and the gradients that each of them has."""
    x, weight, y = data(4, 2)
    computed = posterior(evidence("binary", x, weight, y), PRIOR)
    generator = np.random.default_rng(0)
    spread = torch.cholesky_inverse(computed.factor).numpy()
    pairs = zip(computed.mean.numpy(), spread, strict=True)
    layers = torch.as_tensor(np.stack([generator.multivariate_normal(m, s, DRAWS) for m, s in pairs], 1))
    gradients = slopes("binary", x @ layers.mT, y) @ layers[..., :2]
    moments = sampled_moments("binary", computed, x, y, 2, DRAWS, torch.Generator().manual_seed(1))
    assert ((moments.mean - gradients.mean(0)).abs() < 9 * gradients.std(0) / DRAWS**0.5).all()
    torch.testing.assert_close(moments.variance, gradients.var(0), rtol=0.05, atol=1e-6)


def test_moments_do_not_depend_on_how_many_draws_are_looked_at_at_once(monkeypatch):
    x, weight, y = data(12, 3)
    computed = posterior(evidence("binary", x, weight, y), PRIOR)
    whole = sampled_moments("binary", computed, x, y, 3, 50, torch.Generator().manual_seed(1))
    monkeypatch.setattr("excessmtl.methods.last_layer._AT_ONCE", 7 * 12 * 3)
    parts = sampled_moments("binary", computed, x, y, 3, 50, torch.Generator().manual_seed(1))
    torch.testing.assert_close(tuple(whole), tuple(parts))
