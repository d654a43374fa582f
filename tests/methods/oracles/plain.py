"""A model of two shared layers and three heads as functions of flat vectors, trained by what an oracle decides.

An oracle is a generator: it is given the steps of a training run, one `Seen` after the other, and yields for each
    weights, heads                      the shared parameters take sum_i weights_i g_i, head i takes heads_i h_i
    weights, heads, direction           the shared parameters take the direction
or a list of such decisions where the method draws at random: the places of those that fit are sent back. Before it
asks for the next step the model has moved, so that `seen.losses_now()` are the losses of the same batch after the step.
Everything is in float64: NumPy, or autograd on the losses themselves.
"""

from functools import cached_property

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

INPUTS, HIDDEN, FEATURES, OUTPUTS, SAMPLES = 4, 6, 5, (3, 1, 2), 7
STEPS, PER_EPOCH, RATE = 12, 2, 0.05
TASKS = ("a", "b", "c")
EQUAL = np.ones(3)


def make_model():
    """The model as a user writes it."""
    torch.manual_seed(3)
    trunk = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, FEATURES), nn.Tanh())
    heads = nn.ModuleDict({task: nn.Linear(FEATURES, size) for task, size in zip(TASKS, OUTPUTS, strict=True)})
    return nn.ModuleDict({"trunk": trunk, "heads": heads}).double()


def make_batch(number, second=False):
    """Inputs and targets; the tasks want different things of one feature, so that gradients conflict.

    The second batch of a step has targets with other noise, and inputs that are a little different.
    """
    inputs, others = (torch.Generator().manual_seed(seed) for seed in (number, number + 100 * (1 + second)))
    x = torch.randn(SAMPLES, INPUTS, generator=inputs, dtype=torch.float64)
    noise = torch.randn(SAMPLES, 3, generator=others, dtype=torch.float64)
    x = x + 0.3 * second * torch.randn(SAMPLES, INPUTS, generator=others, dtype=torch.float64)
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return x, (labels, x[:, :1] - x[:, 1:2] + 0.5 * noise[:, :1], 0.5 * noise[:, 1:] - x[:, :2])


def losses_at(outputs, targets):
    """Cross-entropy, and squared errors of different size."""
    first, second, third = (loss(*pair) for loss, pair in zip(_LOSSES, zip(outputs, targets, strict=True), strict=True))
    return [first, 0.5 * second, 0.4 * third]


_LOSSES = (cross_entropy, mse_loss, mse_loss)


def _affine(flat, size, x):
    """x W' + b, with the rows of W and then b side by side in `flat`."""
    return x @ flat[: -size or None].view(size, -1).T + flat[-size:]


def representation(shared, x):
    """What the two shared layers make of x."""
    first = HIDDEN * (INPUTS + 1)
    return _affine(shared[first:], FEATURES, _affine(shared[:first], HIDDEN, x).tanh()).tanh()


def losses(shared, heads, batch):
    """[3] losses at flat parameters."""
    z = representation(shared, batch[0])
    outputs = [_affine(head, size, z) for head, size in zip(heads, OUTPUTS, strict=True)]
    return torch.stack(losses_at(outputs, batch[1]))


def jacobian(values, inputs):
    """[values, inputs] derivatives by autograd."""
    rows = [torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True)[0] for value in values]
    return np.stack([np.zeros(inputs.shape) if row is None else row.numpy() for row in rows])


class Seen:
    """One step: losses, gradients of the tasks, and what else a paper's equations speak of."""

    last_layer = slice(HIDDEN * (INPUTS + 1), -FEATURES)
    """The weights, without the biases, of the last shared layer among the shared parameters."""

    def __init__(self, model, number, batch, second_batch):
        self.model, self.number, self.epoch = model, number, number // PER_EPOCH
        self.batch, self.second_batch = batch, second_batch
        leaves = [tensor.clone().requires_grad_() for tensor in (model.shared, *model.heads)]
        values = losses(leaves[0], leaves[1:], batch)
        self.losses = values.detach().numpy()
        self.rows = jacobian(values, leaves[0])
        """[3, n] gradients at the shared parameters."""
        self.head_rows = [jacobian(values[[i]], leaves[1 + i])[0] for i in range(3)]
        self.gram = self.rows @ self.rows.T

    def losses_now(self):
        return losses(self.model.shared, self.model.heads, self.batch).numpy()

    @property
    def second_losses(self):
        return losses(self.model.shared, self.model.heads, self.second_batch).numpy()

    @cached_property
    def second_rows(self):
        """[3, n] gradients of the second batch at the shared parameters."""
        leaf = self.model.shared.clone().requires_grad_()
        return jacobian(losses(leaf, self.model.heads, self.second_batch), leaf)

    @cached_property
    def at_z(self):
        """z [samples, features], and [3, samples, features] the derivatives of the losses by it."""
        z = representation(self.model.shared, self.batch[0]).requires_grad_()
        outputs = [_affine(head, size, z) for head, size in zip(self.model.heads, OUTPUTS, strict=True)]
        return z.detach().numpy(), jacobian(losses_at(outputs, self.batch[1]), z)

    def through_trunk(self, dz):
        """The gradient at the shared parameters of what has this derivative by z."""
        leaf = self.model.shared.clone().requires_grad_()
        return torch.autograd.grad(representation(leaf, self.batch[0]), leaf, torch.from_numpy(dz))[0].numpy()

    def by_coefficients(self, coefficients, start, form):
        """[3, 3] derivatives of validation losses by three coefficients c, at theta - sum_i c_i grad l_i(theta).

        `coefficients` is c as a tensor made from `start`, the leaf to derive by. The whole model moves, heads included.
        The losses are taken there (`form="function"`) or at theta itself, with the same derivatives of theta by c
        ("dict"). Without a second batch (None, in no paper) the first serves, and only shared parameters count.
        """
        c = coefficients if form == "function" else coefficients - coefficients.detach()
        shared = self.model.shared - c @ torch.from_numpy(self.rows)
        own = zip(self.model.heads, self.head_rows, c, strict=True)
        heads = [head - one * torch.from_numpy(row) for head, row, one in own]
        values = losses(shared, heads, self.second_batch) if form else losses(shared, self.model.heads, self.batch)
        return jacobian(values, start)


class Plain:
    """The parameters, and plain gradient descent."""

    def __init__(self, shared, heads):
        self.shared, self.heads = shared.clone(), [head.clone() for head in heads]

    def steps(self):
        for number in range(STEPS):
            self.seen = Seen(self, number, make_batch(number), make_batch(number, second=True))
            yield self.seen

    def moved(self, weights, heads, direction=None):
        """Shared parameters and heads after a step."""
        direction = np.asarray(weights) @ self.seen.rows if direction is None else direction
        own = zip(self.heads, heads, self.seen.head_rows, strict=True)
        return self.shared - RATE * torch.from_numpy(direction), [
            head - RATE * float(factor) * torch.from_numpy(row) for head, factor, row in own
        ]
