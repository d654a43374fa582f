"""BayesAgg-MTL from the equations of its paper: Gaussian posteriors of the last layers, and moments of gradients."""

import numpy as np
import torch
from oracles.plain import EQUAL, FEATURES, OUTPUTS, PER_EPOCH, SAMPLES
from scipy.special import softmax

KINDS = ["classification", "regression", "regression"]
FACTORS = np.array([1, 0.5, 0.4])
"""Of the losses."""


def bayes_agg(steps, prior, powers, draws, warmup, seed=0):
    """Achituve et al. 2024, Algorithm 1. `draws`: of the last layer of the classification."""
    stream, before, now = torch.Generator().manual_seed(seed), [0, 0, 0], [0, 0, 0]
    for seen in steps:
        if seen.number and seen.number % PER_EPOCH == 0:
            before, now = now, [0, 0, 0]
        noise = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=stream)))
        z, dz = seen.at_z
        x = np.hstack([z, np.ones((SAMPLES, 1))])
        layers = [_layer(head.numpy(), size) for head, size in zip(seen.model.heads, OUTPUTS, strict=True)]
        targets = [target.numpy() for target in seen.batch[1]]
        batch = [_expanded(layers[0], x, targets[0]), *(_squares(x, target) for target in targets[1:])]
        known = [one + other for one, other in zip(before, batch, strict=True)]
        now = [one + other for one, other in zip(now, batch, strict=True)]
        if seen.epoch < warmup:
            yield EQUAL / 3, EQUAL, seen.through_trunk(dz.sum(0) / 3)
            continue
        moments = [
            _sampled(known[0], prior, x, targets[0], noise, draws),
            *(_exact(one, prior, x, target) for one, target in zip(known[1:], targets[1:], strict=True)),
        ]
        precisions = np.stack([variance**-power for (_, variance), power in zip(moments, powers, strict=True)])
        shares = precisions / precisions.sum(0)
        means = np.stack([mean for mean, _ in moments]) * FACTORS[:, None, None] / SAMPLES
        yield shares.mean((1, 2)), EQUAL, seen.through_trunk((shares * means).sum(0))


def _layer(head, size):
    """[outputs, features + 1], the bias last."""
    return np.hstack([head[:-size].reshape(size, -1), head[-size:, None]])


def _posterior(known, prior):
    """Mean and covariance; the last column of `known` is precision times mean, one column per output."""
    n = len(known)
    covariance = np.linalg.inv(known[:, :n] + np.eye(n) / prior)
    return covariance @ known[:, n:], covariance


def _squares(x, y):
    return np.hstack([x.T @ x, x.T @ y])


def _exact(known, prior, x, y):
    """E and Var of sum_o 2 / O u_o (w_o x - y_o): a quadratic form w'Aw + b'w of a Gaussian for every feature."""
    means, covariance = _posterior(known, prior)
    expected, variance = np.zeros((2, SAMPLES, FEATURES))
    for sample, feature in np.ndindex(SAMPLES, FEATURES):
        unit = np.eye(len(covariance))[feature]
        a = (np.outer(unit, x[sample]) + np.outer(x[sample], unit)) / 2
        for mean, label in zip(means.T, y[sample], strict=True):
            b = -label * unit
            slope = 2 * a @ mean + b
            product = a @ covariance
            expected[sample, feature] += np.trace(product) + mean @ a @ mean + b @ mean
            variance[sample, feature] += 2 * np.trace(product @ product) + slope @ covariance @ slope
    factor = 2 / y.shape[1]
    return factor * expected, factor**2 * variance


def _expanded(layer, x, y):
    """The summed cross-entropy to second order around the layer as it is: P, and P w minus the gradient."""
    p = softmax(x @ layer.T, axis=1)
    hessian = sum(np.kron(np.diag(q) - np.outer(q, q), np.outer(row, row)) for q, row in zip(p, x, strict=True))
    gradient = ((p - np.eye(len(layer))[y]).T @ x).ravel()
    return np.hstack([hessian, (hessian @ layer.ravel() - gradient)[:, None]])


def _sampled(known, prior, x, y, generator, draws):
    mean, covariance = _posterior(known, prior)
    noise = torch.randn(1, len(covariance), draws, generator=generator)[0].double().numpy()
    factor = np.linalg.cholesky(np.linalg.inv(covariance))
    layers = (mean + np.linalg.solve(factor.T, noise)).T.reshape(draws, OUTPUTS[0], -1)
    p = np.stack([softmax(x @ layer.T, axis=1) for layer in layers])
    gradients = (p - np.eye(OUTPUTS[0])[y]) @ layers[..., :FEATURES]
    return gradients.mean(0), gradients.var(0)
