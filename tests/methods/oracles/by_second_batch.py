"""Methods that take a second batch or validation losses, from their papers' equations."""

import numpy as np
import torch
from oracles.by_gradients import min_norm, to_simplex
from oracles.by_losses import Adam, softmax
from oracles.plain import EQUAL
from scipy.optimize import minimize


def _products(seen, second):
    """Gradients of the second batch times those of the first, at the shared parameters."""
    return (seen.second_rows if second else seen.rows) @ seen.rows.T


def modo(steps, gamma, rho, second):
    """Chen et al., Algorithm 1."""
    w = EQUAL / 3
    for seen in steps:
        w = to_simplex(w - gamma * (_products(seen, second) @ w + rho * w))
        yield w, EQUAL


def sdmgrad(steps, pull, rate, iterations, second):
    """Xiao et al., Algorithm 1: projected gradient steps with torch's own SGD and momentum."""
    w = torch.full((3,), 1 / 3, dtype=torch.float64)
    for seen in steps:
        a = _products(seen, second)
        a = a / np.sqrt(a.diagonal()).mean() ** 2
        w = w.clone().requires_grad_()
        optimiser = torch.optim.SGD([w], lr=rate, momentum=0.5)
        for _ in range(iterations):
            w.grad = torch.from_numpy(a @ (w.detach().numpy() + pull / 3))
            optimiser.step()
            w.data = torch.from_numpy(to_simplex(w.detach().numpy()))
        w = w.detach()
        yield (w.numpy() + pull / 3) / (1 + pull), EQUAL


def moml(steps, eta, rate, normalize, form):
    """Ye et al.: upper-level gradients by autograd through theta'(p); normalised before the min-norm problem alone."""
    p = Adam(EQUAL * 0, rate)
    for seen in steps:
        leaf = torch.tensor(p.now, requires_grad=True)
        upper = seen.by_coefficients(eta * leaf.softmax(0), leaf, form)
        norms = np.linalg.norm(upper, axis=1) if normalize == "l2" else seen.second_losses
        units = upper / norms[:, None]
        p.step(min_norm(units @ units.T) @ upper)
        yield softmax(p.now), softmax(p.now)


def auto_lambda(steps, eta, rate, primary, form):
    """Liu et al.: lambda follows the validation losses of the primary tasks after one step of the whole model."""
    weights = Adam(EQUAL * 0.1, rate)
    for seen in steps:
        leaf = torch.tensor(weights.now, requires_grad=True)
        weights.step(seen.by_coefficients(eta * leaf, leaf, form)[primary].sum(0))
        yield weights.now, weights.now


def forum(steps, upper, lower, rho, eta=0.5, rate=0.05, power=0.75):
    """Ye et al., with f after the inner steps to first order, as documented; omega is the whole model.

    d = sum_i lambda_i grad F_i + nu grad q is computed in the space of omega and alpha; lambda by SciPy.
    """
    alpha, shares = Adam(np.zeros(len(lower)), rate), np.full(len(upper), 1 / len(upper))
    for seen in steps:
        heads = np.zeros((3, sum(map(len, seen.head_rows))))
        places = np.cumsum([0, *map(len, seen.head_rows)])
        for i, row in enumerate(seen.head_rows):
            heads[i, places[i] : places[i + 1]] = row
        rows = np.hstack((seen.rows, heads))
        s = softmax(alpha.now)
        f = s @ rows[lower]
        by_alpha = (np.diag(s) - np.outer(s, s)) @ (eta * rows[lower] @ f)
        q, objectives = np.append(f, by_alpha), np.hstack((rows[upper], np.zeros((len(upper), len(lower)))))

        def push(shares, q=q, objectives=objectives):
            return max(rho - q @ (shares @ objectives) / (q @ q), 0)

        def dual(shares, q=q, objectives=objectives, push=push):
            d = shares @ objectives + push(shares) * q
            return (d @ d / 2 - push(shares) * rho * q @ q) / (q @ q)

        simplex = {"bounds": [(0, 1)] * len(upper), "constraints": {"type": "eq", "fun": lambda x: x.sum() - 1}}
        starts = [np.full(len(upper), 1 / len(upper)), *(0.8 * np.eye(len(upper)) + 0.2 / len(upper))]
        tries = [minimize(dual, start, method="SLSQP", options={"ftol": 1e-15}, **simplex) for start in starts]
        point = min(tries, key=lambda one: one.fun).x
        shares = shares + (seen.number + 1) ** -power * (point - shares)
        w, nu = np.zeros(3), push(shares)
        w[upper] += shares
        w[lower] += nu * s
        yield w, w
        alpha.step(nu * by_alpha)
