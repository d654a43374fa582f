"""ExcessMTL: Algorithm 1 of the paper, and the robust form of docs/estimators.md."""

import numpy as np
from oracles.by_losses import softmax
from oracles.plain import EQUAL, SAMPLES


def adapter_gradients(seen):
    """[3, samples, features + 1, features] of a virtual linear layer at z: (z_b, 1) times the sample's gradient."""
    z, dz = seen.at_z
    return np.einsum("bj,tbk->tbjk", np.hstack((z, np.ones((SAMPLES, 1)))), SAMPLES * dz)


def paper(steps, eta, warmup=None, at_z=False):
    """Algorithm 1. `warmup`: excess risks relative to their mean over so many first steps, in which weights rest."""
    squares, alpha, initial = 0, EQUAL / 3, []
    for seen in steps:
        g = adapter_gradients(seen).mean(1).reshape(3, -1) if at_z else seen.rows
        squares = squares + g * g  # Eq. 7
        risks = (g * g / np.sqrt(squares)).sum(1)  # Eq. 6
        if warmup is not None and len(initial) < max(warmup, 1):
            initial.append(risks)
        if not warmup or seen.number >= warmup:
            alpha = alpha * np.exp(eta * (risks if warmup is None else risks / np.mean(initial, 0)))  # Eq. 9
            alpha = alpha / alpha.sum()
        yield alpha, EQUAL


def robust(steps, trust=1.5, need=0.2, first_steps=20, decay=0.99, damping=1e-3, cap=100.0, likelihoods=()):
    """w_i ~ exp(-trust (r_i - e_i) / r0_i) (e_i / r_i)^need / sqrt(n0_i r0_i), the parts as the page defines them."""
    loss, signal, noise, first_losses, first_norms = np.zeros(3), 0, 0, [], []
    for seen in steps:
        g = adapter_gradients(seen)
        u = (g.sum(1) ** 2 - (g**2).sum(1)) / (SAMPLES * (SAMPLES - 1))
        signal = decay * signal + (1 - decay) * u.sum(2)
        noise = decay * noise + (1 - decay) * (g**2).mean(1).sum(2)
        shares = (signal / (noise + damping * noise.mean(1, keepdims=True))).sum(1).clip(0, 1)
        own = min((seen.number + 1) / first_steps, 1)  # at first the mean of all tasks stands in for a task's own
        shares = (1 - own) * shares.mean() + own * shares
        loss = decay * loss + (1 - decay) * seen.losses
        r = loss / (1 - decay ** (seen.number + 1))
        if seen.number < first_steps:
            first_losses.append(seen.losses)
            first_norms.append(np.linalg.norm(g.mean(1).reshape(3, -1), axis=1))
        r0 = np.maximum(np.mean(first_losses, 0), r / 2)
        n0 = np.mean(first_norms, 0)
        n0 = np.maximum(n0 / r0, (n0 / r0).max() / cap) * r0
        e = r * shares
        raw = np.exp(-trust * (r - e) / r0) * np.maximum(shares, 0.01) ** need
        scale, ours = np.log(n0 * r0) / 2, np.array(likelihoods or (False,) * 3)
        logs = np.log(raw / raw[~ours].mean()) - scale
        yield softmax(np.where(ours, -scale[ours].sum() / max(ours.sum(), 1), logs)), EQUAL
