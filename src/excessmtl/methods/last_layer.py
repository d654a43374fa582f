"""A Bayesian last layer: the Gaussian posterior of its weights, and what that says of the gradient of a sample.

Achituve et al., "Bayesian Uncertainty for Gradient Aggregation in Multi-Task Learning", ICML 2024,
https://arxiv.org/abs/2402.04005. A linear layer w sees x = (h, 1), or x = h where it has no bias. What data say of w
is kept as a precision P (a matrix) and P times the mean, which are sums over samples:
    regression       P = sum x x',            P mean = sum y x                 (exact; noise of variance 1)
    classification   P = sum H(x) (x) x x',   P mean = P w - a                 (second order around the present w)
with a the gradient of the summed loss and H the second derivative by the logits. Outputs of a regression have one P in
common, binary outputs have one each, and the classes of a classification share one: [classes * inputs] squared.
"""

from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from excessmtl.solvers.conditioning import precise

Kind = Literal["regression", "binary", "classification"]
KINDS = ("regression", "binary", "classification")
_AT_ONCE = 2**22
"""Numbers per tensor of sampled gradients."""


class Evidence(NamedTuple):
    """What samples say of a last layer; evidence of different samples adds up."""

    precision: Tensor
    """[blocks, n, n]"""
    information: Tensor
    """[rows, n]: precision times mean."""


class Posterior(NamedTuple):
    """A Gaussian over the weights of a last layer."""

    mean: Tensor
    """[rows, n]"""
    factor: Tensor
    """[blocks, n, n]: the Cholesky factor of the precision."""


class Moments(NamedTuple):
    """Of the gradient of each sample's loss by the representation."""

    mean: Tensor
    """[samples, features]"""
    variance: Tensor
    """[samples, features]"""


def sizes(kind: Kind, layer: nn.Linear) -> tuple[int, int, int]:
    """Blocks, rows and n."""
    outputs, inputs = layer.out_features, layer.in_features + (layer.bias is not None)
    if kind == "classification":
        return 1, 1, outputs * inputs
    return (1 if kind == "regression" else outputs), outputs, inputs


def slopes(kind: Kind, outputs: Tensor, target: Tensor) -> Tensor:
    """[..., samples, outputs]: of the loss of a sample by the outputs; its mean over the outputs of one task."""
    if kind == "classification":
        # `one_hot` would read the labels on the host.
        return (
            outputs.softmax(-1) - (target[..., None] == torch.arange(outputs.shape[-1], device=target.device)).float()
        )
    if kind == "binary":
        return (outputs.sigmoid() - target) / target.shape[-1]
    return 2 * (outputs - target) / target.shape[-1]


def evidence(kind: Kind, x: Tensor, weight: Tensor, target: Tensor) -> Evidence:
    """Of samples x [samples, inputs] with targets [samples, outputs], or class numbers [samples]; x = 0 says nothing.

    `weight` [outputs, inputs]: the last layer as it is, around which a classification is expanded.
    """
    if kind == "regression":
        return Evidence((x.T @ x)[None], target.T @ x)
    logits = x @ weight.T
    if kind == "binary":
        p = logits.sigmoid()
        precision = torch.einsum("bo,bd,be->ode", p * (1 - p), x, x)
        rows, gradient = weight, (p - target).T @ x
    else:
        p = logits.softmax(1)
        # diag(p) - p p' times x x', summed: no tensor is larger than the result.
        products = (p[:, :, None] * x[:, None]).flatten(1)
        blocks = torch.einsum("bc,bd,be->dec", p, x, x)
        precision = -(products.T @ products).view(*weight.shape, *weight.shape)
        precision.diagonal(dim1=0, dim2=2).add_(blocks)
        precision = precision.view(1, weight.numel(), weight.numel())
        rows, gradient = weight.reshape(1, -1), (slopes(kind, logits, target).T @ x).reshape(1, -1)
    return Evidence(precision, (precision @ rows[..., None]).squeeze(-1) - gradient)


def posterior(seen: Evidence, prior_variance: float) -> Posterior:
    """Of N(0, prior_variance) and the evidence."""
    identity = torch.eye(seen.precision.shape[-1], dtype=seen.precision.dtype, device=seen.precision.device)
    # Unlike `cholesky`, this does not make the host wait for the device.
    factor = torch.linalg.cholesky_ex(precise(seen.precision + identity / prior_variance))[0]
    return Posterior(torch.cholesky_solve(precise(seen.information)[..., None], factor).squeeze(-1), factor)


def exact_moments(weights: Posterior, x: Tensor, target: Tensor, features: int) -> Moments:
    """Regression: of g = mean over outputs of 2 u (w.x - y), with u the first `features` entries of w.

    u and r = w.x - y are jointly Gaussian, and Var(u r) = E[u]^2 Var(r) + E[r]^2 Var(u) + 2 E[u] E[r] c + Var(u) Var(r)
    + c^2 with c their covariance.
    """
    # `cholesky_inverse` may make the host wait for the device.
    identity = torch.eye(x.shape[1], dtype=weights.factor.dtype, device=x.device)
    inverse = torch.linalg.solve_triangular(weights.factor[0], identity, upper=False)
    mean, covariance = weights.mean.to(x.dtype), (inverse.T @ inverse).to(x.dtype)
    count, u = len(mean), mean[:, :features]
    residuals = x @ mean.T - target
    spread, along = covariance.diagonal()[:features], x @ covariance
    uncertain = (along * x).sum(1, keepdim=True)
    along, products = along[:, :features], residuals @ u
    variance = u.square().sum(0) * uncertain + residuals.square().sum(1, keepdim=True) * spread
    variance = variance + 2 * products * along + count * (spread * uncertain + along.square())
    return Moments(2 * (products / count + along), 4 / count**2 * variance)


def sampled_moments(
    kind: Kind, weights: Posterior, x: Tensor, target: Tensor, features: int, samples: int, generator: Generator
) -> Moments:
    """Classification of either kind: from draws of w."""
    (rows, n), inputs = weights.mean.shape, x.shape[1]
    noise = torch.randn(rows, n, samples, generator=generator, device=x.device).to(weights.mean.dtype)
    draws = weights.mean[..., None] + torch.linalg.solve_triangular(weights.factor.mT, noise, upper=True)
    draws = draws.permute(2, 0, 1).reshape(samples, -1, inputs).to(x.dtype)
    if kind == "binary":  # outputs know nothing of each other: no tensor of draws by samples by features
        first = second = torch.zeros((), dtype=weights.mean.dtype, device=x.device)
        for some in draws.split(max(1, _AT_ONCE // max(1, draws.shape[1] * max(features, len(x))))):
            slope, u = precise(slopes(kind, x @ some.mT, target)), precise(some[..., :features])
            first = first + torch.einsum("sbo,sod->bod", slope, u)
            second = second + torch.einsum("sbo,sod->bod", slope.square(), u.square())
        first, second = first / samples, second / samples
        return Moments(first.sum(1).to(x.dtype), (second - first.square()).clamp(min=0).sum(1).to(x.dtype))
    centre = weights.mean.reshape(-1, inputs).to(x.dtype)
    # Deviations from the gradient at the mean: their squares lose no digits.
    start = slopes(kind, x @ centre.T, target) @ centre[:, :features]
    first, second = torch.zeros_like(start), torch.zeros_like(start)
    for some in draws.split(max(1, _AT_ONCE // max(1, len(x) * max(features, draws.shape[1])))):
        off = slopes(kind, x @ some.mT, target) @ some[..., :features] - start
        first, second = first + off.sum(0), second + off.square().sum(0)
    first, second = first / samples, second / samples
    return Moments(start + first, (second - first.square()).clamp(min=0))
