"""Methods that look at the losses alone, from their papers' equations."""

import numpy as np
import torch
from oracles.plain import EQUAL, PER_EPOCH


class Adam:
    """torch's own Adam, on numbers a method learns."""

    def __init__(self, start, rate, decay=0.0):
        self.value = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        self.optimiser = torch.optim.Adam([self.value], lr=rate, weight_decay=decay)

    def step(self, gradient):
        self.value.grad = torch.as_tensor(gradient, dtype=torch.float64)
        self.optimiser.step()

    @property
    def now(self):
        return self.value.detach().numpy().copy()


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def slopes(objective, losses, *more):
    """Derivatives of an objective by the losses, and by what else it depends on."""
    leaves = [torch.tensor(value, requires_grad=True) for value in (losses, *more)]
    found = torch.autograd.grad(objective(*leaves), leaves)
    return [one.numpy() for one in found] if more else found[0].numpy()


def trained_on(steps, objective, *options):
    """A method that is nothing but another objective than the sum of the losses."""
    for seen in steps:
        w = slopes(lambda losses: objective(losses, *options), seen.losses)
        yield w, w


def static(losses, weights=(1 / 3, 1 / 3, 1 / 3)):
    return torch.tensor(weights, dtype=torch.float64) @ losses


def log_loss(losses):
    return losses.log().sum()


def gls(losses):
    return losses.prod() ** (1 / 3)


def cosmos(losses, r, penalty):
    """Ruchte & Grabocka, the objective with the cosine; preferences sum to one."""
    r = torch.tensor(r, dtype=torch.float64) / sum(r)
    return r @ losses - penalty * torch.cosine_similarity(r, losses, dim=0)


def pbi(losses, r, theta):
    """Zhang & Li, d_1 + theta d_2 with the ideal point 0."""
    r = torch.tensor(r, dtype=torch.float64) / np.linalg.norm(r)
    along = losses @ r
    return along + theta * (losses - along * r).norm()


def groupdro(steps, eta, adjustment=(0, 0, 0)):
    """Sagawa et al., Algorithm 1."""
    q = EQUAL / 3
    for seen in steps:
        q = q * np.exp(eta * (seen.losses + np.array(adjustment)))
        q = q / q.sum()
        yield q, q


def imtl_l(steps):
    """Liu et al.: every step trains model and s on sum_i e^s_i l_i - s_i."""
    s = Adam(EQUAL * 0, 0.025)
    for seen in steps:
        w, by_s = slopes(lambda losses, s: (s.exp() * losses - s).sum(), seen.losses, s.now)
        yield w, w
        s.step(by_s)


def uw(steps, classification):
    """Kendall et al., with s = log sigma^2 trained along; the tasks in `classification` have no factor 1/2."""
    factor = torch.tensor([1.0 if task in classification else 0.5 for task in range(3)], dtype=torch.float64)
    s = Adam(EQUAL * 0, 0.025)
    for seen in steps:
        w, by_s = slopes(lambda losses, s: (factor * (-s).exp() * losses + s / 2).sum(), seen.losses, s.now)
        yield w, w
        s.step(by_s)


def dtp(steps, rate, gamma, indicator):
    """Guo et al.: focal weights of an average of indicators, which starts at the first of them."""
    average = None
    for seen in steps:
        newest = indicator(seen)
        average = newest if average is None else rate * newest + (1 - rate) * average
        w = -((1 - average) ** np.array(gamma)) * np.log(average)
        yield w, w


def _epoch_means(history):
    """[epochs, 3] means of the finished epochs."""
    finished = len(history) // PER_EPOCH * PER_EPOCH
    return np.array(history[:finished]).reshape(-1, PER_EPOCH, 3).mean(1)


def dwa(steps):
    """Liu et al., T = 2; ones in the first two epochs."""
    history = []
    for seen in steps:
        means = _epoch_means(history)
        w = EQUAL if len(means) < 2 else 3 * softmax(means[-1] / means[-2] / 2)
        history.append(seen.losses)
        yield w, w


def igb(steps, base):
    """Dai et al., IGBv1: sum_i lambda_i log l_i with lambda = m softmax(l / mean of epoch `base`), a constant."""
    history = []
    for seen in steps:
        means = _epoch_means(history)
        weight = EQUAL if seen.epoch <= base else 3 * softmax(seen.losses / means[base])
        history.append(seen.losses)
        yield weight / seen.losses, weight / seen.losses


def stch(steps, warmup, mu):
    """Lin et al.: sum of logarithms in epochs 0..warmup, then relative to the mean losses of epoch `warmup`."""
    history = []
    for seen in steps:
        means = _epoch_means(history)
        if seen.epoch <= warmup:
            w = 1 / seen.losses
        else:
            nadir = torch.tensor(means[warmup])
            w = slopes(lambda f, n=nadir: 3 * mu * torch.logsumexp((f / n).log() / mu, 0), seen.losses)
        history.append(seen.losses)
        yield w, w


def uw_so(steps, temperature):
    """Kirchdorfer et al.: the softmax of the weights 1 / l of UW-O."""
    for seen in steps:
        w = softmax(1 / seen.losses / temperature)
        yield w, w


def famo(steps, again, decay=1e-3, lower=0.0):
    """Liu et al., Algorithm 1. `again`: losses of the same batch after the step; else those of the next batch."""
    xi, before, z, lower = Adam(EQUAL * 0, 0.025, decay), None, None, np.array(lower)

    def move(after):
        delta = np.log(before - lower) - np.log(after - lower)
        xi.step((np.diag(z) - np.outer(z, z)) @ delta)

    for seen in steps:
        if before is not None and not again:
            move(seen.losses)
        z, before = softmax(xi.now), seen.losses
        w = z / (before - lower)
        w = w / w.sum()
        yield w, w
        if again:
            move(seen.losses_now())


def ldc_mtl(steps, penalty, weighted):
    """Xiao et al., the penalised objective, for model and weights; what is compared is s_i l_i or l_i."""

    def objective(losses, v):
        s = v.softmax(0)
        compared = s * losses if weighted else losses
        return s @ losses + penalty * compared.diff().abs().sum()

    v = Adam(EQUAL * 0, 0.05)
    for seen in steps:
        w, by_v = slopes(objective, seen.losses, v.now)
        yield w, w
        v.step(by_v)


def rlw(steps, seed):
    """Lin et al.: softmax of normal draws, those of torch's generator with this seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in steps:
        w = softmax(torch.randn(3, generator=generator).double().numpy())
        yield w, w
