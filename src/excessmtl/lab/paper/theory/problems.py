"""Convex multi-task problems on a ball whose constants L, B_l and B_theta are known exactly.

Each task is a linear model under a convex loss, averaged over a finite set of samples; that set *is* its distribution,
so risks are exact and a stochastic gradient is the gradient at a sample drawn from it. Rows of features have length 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """A convex function of the prediction s given the label y, its derivative in s, and a bound on the second one."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    curvature: float


_HUBER = 0.5


def _huber(s: Array, y: Array) -> Array:
    residual = np.abs(s - y)
    return np.where(residual < _HUBER, residual**2 / 2, _HUBER * (residual - _HUBER / 2))


LOSSES = {
    "logistic": Loss(lambda s, y: np.logaddexp(0, -y * s), lambda s, y: -y / (1 + np.exp(y * s)), 0.25),
    "huber": Loss(_huber, lambda s, y: np.clip(s - y, -_HUBER, _HUBER), 1.0),
    "least squares": Loss(lambda s, y: (s - y) ** 2 / 2, lambda s, y: s - y, 1.0),
}
KINDS = tuple(LOSSES)
_RADIUS = {"logistic": 5.0, "huber": 1.0, "least squares": 1.0}


@dataclass(frozen=True)
class Problem:
    """m tasks with n samples each in d dimensions, parameters confined to a ball."""

    kind: str
    features: Array
    """[m, n, d]"""
    targets: Array
    """[m, n]"""
    radius: float
    """B_theta"""

    @property
    def loss(self) -> Loss:
        """The loss of every task."""
        return LOSSES[self.kind]

    @property
    def tasks(self) -> int:
        """m"""
        return len(self.targets)

    def risks(self, theta: Array) -> Array:
        """[..., d] -> [..., m]"""
        return np.asarray(self.loss.value(self._predictions(theta), self.targets).mean(-1))

    def gradients(self, theta: Array) -> Array:
        """[..., d] -> [..., m, d]"""
        slopes = self.loss.slope(self._predictions(theta), self.targets)
        return np.asarray(np.matmul(slopes[..., None, :], self.features)[..., 0, :] / self.targets.shape[1])

    def project(self, theta: Array) -> Array:
        """The nearest point of the ball."""
        lengths = np.sqrt((theta * theta).sum(-1, keepdims=True))
        return np.asarray(theta * np.minimum(1, self.radius / np.maximum(lengths, 1e-300)))

    @property
    def lipschitz(self) -> float:
        """L: the longest gradient of any sample on the ball. A convex loss is steepest at an end of its range."""
        return float((self._at_ends(self.loss.slope) * self._lengths()).max())

    @property
    def largest_loss(self) -> float:
        """B_l: the largest loss of any sample on the ball, also at an end. Excess risks are no larger."""
        return float(self._at_ends(self.loss.value).max())

    def _predictions(self, theta: Array) -> Array:
        return np.asarray(np.matmul(self.features, theta[..., None, :, None])[..., 0])

    def _lengths(self) -> Array:
        return np.asarray(np.linalg.norm(self.features, axis=-1))

    def _at_ends(self, function: Callable[[Array, Array], Array]) -> Array:
        reach = self.radius * self._lengths()
        return np.maximum(np.abs(function(-reach, self.targets)), np.abs(function(reach, self.targets)))


def make(kind: str, tasks: int, seed: int = 0, samples: int = 40) -> Problem:
    """A problem of one kind: most tasks want nearly the same, one in eight (at least one) wants the opposite.

    That minority is what a min-max has to find: equal weights nearly ignore it. Every second task has noisy labels
    (a shift of up to 0.25, or 15 % flipped), so its risk has a floor that its excess risk has not.
    """
    if kind not in LOSSES:
        raise ValueError(f"kind must be one of {list(KINDS)}, found {kind!r}")
    if tasks < 2:
        raise ValueError(f"tasks must be at least 2, found {tasks}")
    generator = np.random.default_rng([seed, tasks, KINDS.index(kind)])
    features = generator.normal(size=(tasks, samples, 2))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    angles = generator.uniform(-0.5, 0.5, tasks)
    angles[: max(1, tasks // 8)] += np.pi
    wanted = _RADIUS[kind] * np.stack((np.cos(angles), np.sin(angles)), 1)
    predictions = np.einsum("mnd,md->mn", features, wanted)
    noisy = (np.arange(tasks) % 2 == 1)[:, None]
    if kind == "logistic":
        flipped = noisy & (generator.random((tasks, samples)) < 0.15)
        targets = np.where(flipped, -1.0, 1.0) * np.sign(predictions)
    else:
        targets = predictions + noisy * generator.uniform(-0.25, 0.25, (tasks, samples))
    return Problem(kind, features, targets, _RADIUS[kind])
