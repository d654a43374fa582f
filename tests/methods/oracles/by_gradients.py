"""Methods that look at the tasks' gradients, from their papers' equations.

The small optimisation problems are solved by other means than the library's: by trying every active set (exact, for
three tasks), by SciPy, by a decomposition of the gradients themselves in place of their Gram matrix.
"""

from itertools import combinations, permutations, product

import numpy as np
import torch
from oracles.by_losses import Adam, slopes
from oracles.plain import EQUAL, FEATURES
from scipy.optimize import brentq, least_squares, minimize

_SUBSETS = [list(chosen) for size in range(4) for chosen in combinations(range(3), size)]


def min_norm(gram):
    """The weights on the simplex with the least w'Mw: the best of the stationary points of all faces."""
    found = []
    for face in _SUBSETS[1:]:
        w = np.zeros(3)
        raw = np.linalg.solve(gram[np.ix_(face, face)] + 1e-14 * gram.trace() * np.eye(len(face)), np.ones(len(face)))
        w[face] = raw / raw.sum()
        if (w >= 0).all():
            found.append((w @ gram @ w, tuple(w)))
    return np.array(min(found)[1])


def least_above(gram, floor):
    """argmin v'Mv over v >= floor: the best of the feasible points where the others have no slope."""
    found = []
    for free in _SUBSETS:
        v = floor.astype(float).copy()
        held = [i for i in range(3) if i not in free]
        v[free] = np.linalg.solve(gram[np.ix_(free, free)], -gram[np.ix_(free, held)] @ floor[held])
        if (v >= floor - 1e-12).all():
            found.append((v @ gram @ v, tuple(v)))
    return np.array(min(found)[1])


def to_simplex(v):
    """The nearest point with sum one and no negative entry."""
    shift = brentq(lambda t: np.maximum(v - t, 0).sum() - 1, v.min() - 1, v.max(), xtol=1e-15)
    return np.maximum(v - shift, 0)


def from_rows(steps, weights_of, *options, weighted=False, at_z=False):
    """A method whose weights are a function of the gradients of the step, at the shared parameters or feature."""
    for seen in steps:
        w = weights_of(seen.at_z[1].reshape(3, -1) if at_z else seen.rows, seen.losses, *options)
        yield w, w if weighted else EQUAL


def gradnorm(steps, alpha, rate=0.025, first=None):
    """Chen et al., Algorithm 1: the step with w(t), then a gradient step on L_grad and the rescaling to sum m."""
    w = EQUAL
    for seen in steps:
        yield w, w
        first = seen.losses if first is None else first
        norms = np.linalg.norm(seen.rows[:, seen.last_layer], axis=1)
        relative = seen.losses / first
        target = (w * norms).mean() * (relative / relative.mean()) ** alpha
        by_w = slopes(lambda w, n, goal: (w * n - goal).abs().sum(), w, norms, target)[0]
        w = w - rate * np.where(np.isclose(w * norms, target), 0, by_w)
        w = 3 * w / w.sum()


def mgda(rows, losses, normalize="none"):
    """Sener & Koltun: the least norm in the convex hull of the gradients, each divided by its normaliser."""
    norms = np.linalg.norm(rows, axis=1)
    rows = rows / {"none": EQUAL, "l2": norms, "loss": losses, "loss+": losses * norms}[normalize][:, None]
    return min_norm(rows @ rows.T)


def imtl_g(rows, losses):
    """Liu et al., the closed form with differences to the first gradient."""
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    d, u = rows[0] - rows[1:], units[0] - units[1:]
    rest = rows[0] @ u.T @ np.linalg.inv(d @ u.T)
    return np.array([1 - rest.sum(), *rest])


def imtl_hybrid(steps):
    """IMTL-G on the losses that IMTL-L has scaled; heads as this library documents them, with their plain losses."""
    s = Adam(EQUAL * 0, 0.025)
    for seen in steps:
        scales = np.exp(s.now)
        yield scales * imtl_g(scales[:, None] * seen.rows, None), EQUAL
        s.step(scales * seen.losses - 1)


def _projected(i, order, rows):
    """p_i of PCGrad, as coefficients of the gradients."""
    c = np.eye(3)[i]
    for j in order:
        inner = c @ rows @ rows[j]
        if inner < 0:
            c = c - inner / (rows[j] @ rows[j]) * np.eye(3)[j]
    return c


def _orders():
    """Every choice of orders in which three tasks may meet their two others."""
    return product(*(permutations([j for j in range(3) if j != i]) for i in range(3)))


def pcgrad(steps):
    """Yu et al., Algorithm 1, in every random order."""
    for seen in steps:
        sums = [sum(_projected(i, order, seen.rows) for i, order in enumerate(orders)) for orders in _orders()]
        yield [(w, EQUAL) for w in sums]


def gradvac(steps, rate):
    """Wang et al., Algorithm 1, in every random order; one group of all shared parameters."""

    def one(rows, rho, orders):
        rho, total = rho.copy(), np.zeros(3)
        for i, order in enumerate(orders):
            c = np.eye(3)[i]
            for j in order:
                p, g = c @ rows, rows[j]
                phi = p @ g / np.linalg.norm(p) / np.linalg.norm(g)
                if phi < rho[i, j]:
                    root = np.sqrt(1 - rho[i, j] ** 2)
                    turn = np.linalg.norm(p) * (rho[i, j] * np.sqrt(1 - phi**2) - phi * root)
                    c = c + turn / (np.linalg.norm(g) * root) * np.eye(3)[j]
                rho[i, j] = (1 - rate) * rho[i, j] + rate * phi
            total = total + c
        return total, rho

    possible = [np.zeros((3, 3))]  # several, where orders lead to the same weights and other targets
    for seen in steps:
        outcomes = [one(seen.rows, rho, orders) for rho in possible for orders in _orders()]
        taken = yield [(w, EQUAL) for w, _ in outcomes]
        possible = list({tuple(outcomes[index][1].round(12).flat): outcomes[index][1] for index in taken}.values())


def cagrad(rows, losses, c, rescale):
    """Liu et al., Algorithm 1, with the dual problem solved by SciPy from several starts."""
    mean = rows.mean(0)
    length = np.linalg.norm(mean)

    def dual(w):
        return (w @ rows @ mean + c * length * np.linalg.norm(w @ rows)) / length**2

    simplex = {"bounds": [(0, 1)] * 3, "constraints": {"type": "eq", "fun": lambda w: w.sum() - 1}}
    options = {"ftol": 1e-15, "maxiter": 500}
    starts = [EQUAL / 3, *(0.8 * np.eye(3) + 0.2 / 3)]
    tries = [minimize(dual, start, method="SLSQP", options=options, **simplex) for start in starts]
    w = min(tries, key=lambda one: one.fun).x
    return (EQUAL / 3 + c * length / np.linalg.norm(w @ rows) * w) / {0: 1, 1: 1 + c**2, 2: 1 + c}[rescale]


def graddrop(steps, leak, seed):
    """Chen et al., Algorithm 1, with uniform draws of torch's generator with this seed, one per feature."""
    generator = torch.Generator().manual_seed(seed)
    for seen in steps:
        z, dz = seen.at_z
        signed = (np.sign(z) * dz).sum(1)
        purity = (1 + signed.sum(0) / np.abs(signed).sum(0)) / 2
        draws = torch.rand(FEATURES, generator=generator).double().numpy()
        gates = leak + (1 - leak) * ((purity > draws) * (signed > 0) + (purity < draws) * (signed < 0))
        yield gates.mean(1), EQUAL, seen.through_trunk((gates[:, None] * dz).sum(0))


def bargaining(rows, losses, alpha):
    """M w = w^(-1/alpha): Nash-MTL for alpha = 1 (Navon et al.), FairGrad (Ban & Ji). Solved by least squares."""
    gram = rows @ rows.T
    start = gram.diagonal() ** (-alpha / (1 + alpha))
    exactly = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    found = least_squares(lambda w: gram @ w - w ** (-1 / alpha), start, bounds=(1e-9, np.inf), **exactly)
    assert found.cost < 1e-20
    return found.x


def clipped(rows, losses, times=1.0):
    """Nash's weights times a factor, shortened where the step is longer than 1."""
    w = times * bargaining(rows, losses, 1)
    return w * min(1, 1 / np.linalg.norm(w @ rows))


def upgrad(rows, losses):
    """Quinton & Rey: the mean of the projections of all gradients onto the dual cone."""
    return np.mean([least_above(rows @ rows.T, np.eye(3)[i]) for i in range(3)], axis=0)


def dualproj(rows, losses):
    """Lopez-Paz & Ranzato, Eq. 11: the projection of the mean gradient."""
    return least_above(rows @ rows.T, EQUAL / 3)


def aligned(rows, losses, size):
    """Senushkin et al., Algorithm 1, by the singular values of the gradients themselves."""
    u, s, _ = np.linalg.svd(rows, full_matrices=False)
    common = {"min": s.min(), "median": np.median(s), "rmse": np.sqrt((s**2).mean())}[size]
    return u @ np.diag(common / s) @ u.T @ (EQUAL / 3)


def config(rows, losses):
    """Liu et al., Eq. 2, by the pseudo-inverse of the unit gradients."""
    v = np.linalg.pinv(rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ EQUAL
    v = v / np.linalg.norm(v)
    return np.linalg.lstsq(rows.T, (rows @ v).sum() * v, rcond=None)[0]


def pcd(steps, primary, tau, decay):
    """Varam & Alhajri: the nearest step to u_p with u_j . d >= tau |u_j|^2, from all sets of active constraints."""
    average = np.zeros(3)
    others = [i for i in range(3) if i != primary]
    for seen in steps:
        average = decay * average + (1 - decay) * seen.gram.diagonal()
        units = seen.rows / np.sqrt(average / (1 - decay ** (seen.number + 1)) + 1e-8)[:, None]
        gram, asked = units @ units.T, tau * (units**2).sum(1)
        found = []
        for active in (chosen for chosen in _SUBSETS if primary not in chosen):
            y = np.eye(3)[primary]
            y[active] = np.linalg.solve(gram[np.ix_(active, active)], asked[active] - gram[active, primary])
            if (y[others] >= 0).all() and (gram @ y >= asked - 1e-12)[others].all():
                found.append(y)
        (y,) = found
        d = y @ units
        w = np.linalg.lstsq(seen.rows.T, np.linalg.norm(seen.rows[primary]) * d / np.linalg.norm(d), rcond=None)[0]
        yield w, EQUAL


def krum(rows, losses, bad, selected):
    """Blanchard et al.: scores from the 3 - bad - 2 nearest others."""
    scores = np.sort(((rows[:, None] - rows) ** 2).sum(2), 1)[:, 1 : 3 - bad - 1].sum(1)
    chosen = scores <= np.sort(scores)[selected - 1] * (1 + 1e-9)  # of three, two have each other: equal scores
    return chosen / chosen.sum()


def moco(steps, tracking=0.5, step_size=0.1, power=0.5, rho=0.0):
    """Fernando et al., Algorithm 1."""
    tracked, w = 0, EQUAL / 3
    for seen in steps:
        falling = (seen.number + 1) ** -power
        tracked = tracked - tracking * falling * (tracked - seen.rows)
        w = to_simplex(w - step_size * falling * (tracked @ tracked.T + rho * np.eye(3)) @ w)
        yield w, EQUAL, w @ tracked


def db_mtl(steps, decay, power):
    """Lin et al., Algorithm 1; heads are trained on log l_i, too."""
    average = 0
    for seen in steps:
        rate = decay * (seen.number + 1) ** -power
        average = rate * average + (1 - rate) * seen.rows / seen.losses[:, None]
        lengths = np.linalg.norm(average, axis=1)
        yield 1 / seen.losses, 1 / seen.losses, lengths.max() / lengths @ average


def trimmed_mean(steps):
    """Yin et al., Definition 2: of three values, the middle one; the weights are how often it is a task's."""
    for seen in steps:
        middle = np.argsort(seen.rows, 0)[1]
        yield np.bincount(middle, minlength=3) / len(middle), EQUAL, np.median(seen.rows, 0)


def autoscale(steps, windows, window):
    """Weights in proportion to 1 / mean length of the window before, then the mean of all windows' for good.

    The paper's phases and metric; that the best value of the metric is taken at once is documented as the library's.
    """
    w, lengths, asked = EQUAL / 3, [], []
    for seen in steps:
        yield w, w
        lengths.append(np.linalg.norm(seen.rows, axis=1))
        if len(lengths) == window and len(asked) < windows:
            inverse = 1 / np.mean(lengths, 0)
            asked.append(inverse / inverse.sum())
            w, lengths = asked[-1] if len(asked) < windows else np.mean(asked, 0), []
