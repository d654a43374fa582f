"""Figure 1 of the paper from a real two-task problem: the front, both kinds of balance, and where each method ends.

Least squares with one pair of parameters for two tasks. Every minimum has a closed form, so the front is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import nn

import excessmtl
from excessmtl.lab.paper.plans import Scale
from excessmtl.lab.paper.registry import Drawing, canvas, figure

Array = NDArray[np.float64]
Row = dict[str, Any]
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("uniform", {}),
    "GradNorm": ("gradnorm", {}),
    "MGDA": ("mgda", {}),
    "GroupDRO": ("groupdro", {}),
    "IMTL": ("imtl", {}),
    "ExcessMTL, paper's estimate": ("excess", {"estimator": "paper"}),
    "ExcessMTL, robust (ours)": ("excess", {"estimator": "robust"}),
}
RADIUS = 1.5
"""B_theta: parameters stay within a ball of this size, as the paper assumes."""
_MARKERS = "osD^vP*X"
_CHUNK = 1024
"""Random numbers are drawn for so many steps at a time."""


@dataclass(frozen=True)
class Problem:
    """Two tasks of least squares; the samples of a task are its whole distribution, so risks are exact."""

    features: Array
    """[2, samples, 2]"""
    targets: Array
    """[2, samples]"""

    def risks(self, theta: Array) -> Array:
        """[..., 2] -> [..., 2]: half the mean squared error of each task."""
        residuals = np.matmul(self.features, theta[..., None, :, None])[..., 0] - self.targets
        return np.asarray((residuals**2).mean(-1) / 2)

    def minimum(self, weight: float) -> Array:
        """The parameters with the least risk where task 1 has this weight, and task 2 the rest."""
        scale = np.sqrt([weight, 1 - weight])[:, None]
        features, targets = self.features * scale[..., None], self.targets * scale
        return np.asarray(np.linalg.lstsq(features.reshape(-1, 2), targets.reshape(-1), rcond=None)[0], np.float64)

    @property
    def floors(self) -> Array:
        """[2]: the least risk of each task, alone."""
        return np.array([self.risks(self.minimum(weight))[task] for task, weight in enumerate((1.0, 0.0))])

    def balanced(self, floors: Array | float = 0.0) -> float:
        """The weight of task 1 at which both risks are equally far above these floors: the min-max of the two."""

        def lead(weight: float) -> float:
            first, second = self.risks(self.minimum(weight)) - floors
            return float(first - second)

        return float(brentq(lead, 0.001, 0.999, xtol=1e-14))


def two_tasks(samples: int = 100, seed: int = 0) -> Problem:
    """Two tasks that want opposite parameters; labels of task 1 are noisy.

    Inputs of task 2 are shorter, so that equal weights are not balanced in any sense.
    """
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(2, samples, 2))
    features *= np.array([1.0, 0.6])[:, None, None] / np.linalg.norm(features, axis=2, keepdims=True)
    wanted = np.array([[0.8, 0.3], [-0.8, 0.3]])
    targets = np.einsum("mnd,md->mn", features, wanted)
    targets[0] += generator.uniform(-0.6, 0.6, samples)
    return Problem(features, targets)


def with_known_risks(problem: Problem, horizon: int, runs: int) -> tuple[Array, Array]:
    """Algorithm 1 with the excess risks known, by the step sizes of Theorem 3.1: mean parameters and weights, by run.

    Mirror descent (Nemirovski et al., 2009): theta takes gradient steps, log-weights steps of the excess risks, and
    both are averaged. With L the longest gradient and B_l the largest loss of a sample,
    M^2 = 2 (B_theta^2 L^2 + log(2) B_l^2) and gamma = 2 / (M sqrt(5 T)).
    """
    lengths = np.linalg.norm(problem.features, axis=-1)
    largest = RADIUS * lengths + np.abs(problem.targets)
    scale = 2 * ((RADIUS * (largest * lengths).max()) ** 2 + np.log(2) * (largest**2 / 2).max() ** 2)
    gamma = 2 / np.sqrt(5 * horizon * scale)
    generator, tasks, floors = np.random.default_rng([0, horizon, 2]), np.arange(2), problem.floors
    theta, scores = np.zeros((runs, 2)), np.zeros((runs, 2))
    sum_theta, sum_weights = np.zeros_like(theta), np.zeros_like(scores)
    for begin in range(0, horizon, _CHUNK):
        steps = min(_CHUNK, horizon - begin)
        drawn = generator.integers(problem.targets.shape[1], size=(steps, runs, 2))
        generator.integers(2, size=(steps, runs, 1))  # not used; the published numbers were drawn with it
        for chosen in drawn:
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            sum_theta += theta
            sum_weights += weights
            x = problem.features[tasks, chosen]
            residuals = (x * theta[:, None]).sum(2) - problem.targets[tasks, chosen]
            scores = scores + 2 * np.log(2) * gamma * (residuals**2 / 2 - floors)
            theta = theta - 2 * RADIUS**2 * gamma * ((weights * residuals)[..., None] * x).sum(1)
            theta *= np.minimum(1, RADIUS / np.maximum(np.linalg.norm(theta, axis=1, keepdims=True), 1e-300))
    return sum_theta / horizon, sum_weights / horizon


def train(problem: Problem, method: str, options: dict[str, Any], steps: int, seed: int) -> tuple[Array, Array]:
    """SGD from zero with a method of the library, batches of 16: parameters and weights of every step, [steps, 2]."""
    names = ["task1", "task2"]
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    features, targets = (torch.as_tensor(a, dtype=torch.float32) for a in (problem.features, problem.targets))
    balancer = excessmtl.create(method, tasks=names, shared=model, scale="mean", **options)
    generator = np.random.default_rng(seed)
    thetas, weights = np.zeros((steps, 2)), np.zeros((steps, 2))
    for step in range(steps):
        thetas[step] = model.weight.detach().numpy()[0]
        losses = {}
        for i, name in enumerate(names):
            rows = torch.as_tensor(generator.integers(targets.shape[1], size=16))
            losses[name] = (model(features[i, rows])[:, 0] - targets[i, rows]).square().mean() / 2
        model.zero_grad()
        applied = balancer.backward(losses).weights
        weights[step] = applied.numpy() / float(applied.sum())
        with torch.no_grad():
            assert model.weight.grad is not None
            model.weight -= 0.05 * model.weight.grad
            model.weight *= (RADIUS / model.weight.norm()).clamp(max=1)
    return thetas, weights


def endings(problem: Problem, steps: int, runs: int) -> list[Row]:
    """Each method's risks at the mean of the last quarter of its iterates; the front's two balances come first."""
    equal_losses, equal_risks = problem.balanced(), problem.balanced(problem.floors)
    rows = [
        _row("equal losses (min max loss)", problem, [problem.minimum(equal_losses)], np.nan),
        _row("equal excess risks (min max excess)", problem, [problem.minimum(equal_risks)], equal_risks),
    ]
    thetas, weights = with_known_risks(problem, 16 * steps, runs)
    rows.append(_row("ExcessMTL, excess risks known", problem, thetas, float(weights[:, 0].mean())))
    jobs = [delayed(_end)(problem, *chosen, steps, seed) for chosen in METHODS.values() for seed in range(runs)]
    ends = Parallel(n_jobs=2)(jobs)
    for name, first in zip(METHODS, range(0, len(jobs), runs), strict=True):
        ended, shares = zip(*ends[first : first + runs], strict=True)
        rows.append(_row(name, problem, ended, float(np.mean(shares))))
    return rows


def _end(problem: Problem, method: str, options: dict[str, Any], steps: int, seed: int) -> tuple[Array, float]:
    thetas, weights = train(problem, method, options, steps, seed)
    return thetas[-steps // 4 :].mean(0), float(weights[-steps // 4 :, 0].mean())


def _row(name: str, problem: Problem, thetas: Sequence[Array] | Array, weight: float) -> Row:
    risks = problem.risks(np.array(thetas))
    spread = risks.std(0, ddof=1) if len(risks) > 1 else np.zeros(2)
    return {
        "solution": name,
        "runs": len(risks),
        **{f"loss_{i + 1}": float(risks[:, i].mean()) for i in range(2)},
        **{f"loss_{i + 1}_sd": float(spread[i]) for i in range(2)},
        "weight_of_noisy_task": weight,
    }


@figure("conceptual", "Figure 1: front of two tasks, equal losses against equal excess risks, where each method ends")
def conceptual(scale: Scale) -> Drawing:
    """Draw and tabulate."""
    problem = two_tasks()
    floors = problem.floors
    rows = endings(problem, *((2000, 2) if scale == "quick" else (10_000, 10)))
    rows = [{**row, "floor_1": floors[0], "floor_2": floors[1]} for row in rows]
    shares = np.linspace(0.001, 0.999, 301)
    front = problem.risks(np.array([problem.minimum(share) for share in shares]))
    curve = [{"weight_1": w, "loss_1": a, "loss_2": b} for w, (a, b) in zip(shares, front, strict=True)]
    return Drawing({"": rows, "_front": curve[::5]}, {"": _picture(floors, front, rows)})


def _picture(floor: Array, front: Array, rows: list[Row]) -> Canvas:
    picture = canvas(8.6, 4.8)
    axes = picture.subplots()
    axes.plot(front[:, 0], front[:, 1], color="black", lw=1.5, label="Pareto front", zorder=1)
    axes.axvline(floor[0], color="gray", ls="--", lw=1, label="lowest loss of task 1 (its labels are noisy)")
    axes.axhline(floor[1], color="gray", ls=":", lw=1, label="lowest loss of task 2 (clean)")
    line = np.array([0, front.max()])
    axes.plot(line, line, color="tab:red", lw=0.8, alpha=0.7, label="equal losses")
    axes.plot(line + floor[0], line + floor[1], color="tab:blue", lw=0.8, alpha=0.7, label="equal excess risks")
    for row, colour in zip(rows[:2], ("tab:red", "tab:blue"), strict=True):
        axes.plot(row["loss_1"], row["loss_2"], "o", ms=15, mfc="none", mec=colour, mew=1.5, label=row["solution"])
    for index, (row, marker) in enumerate(zip(rows[2:], _MARKERS, strict=True)):
        spread = {"xerr": row["loss_1_sd"], "yerr": row["loss_2_sd"]}
        # Open markers: several methods end in the same place.
        style = {"marker": marker, "ms": 8, "mfc": "none", "mew": 1.6, "color": f"C{index}"}
        axes.errorbar(row["loss_1"], row["loss_2"], ls="", label=row["solution"], **spread, **style)  # type: ignore[arg-type]
    axes.set(xlabel="loss of task 1 (noisy labels)", ylabel="loss of task 2 (clean labels)")
    axes.set(xlim=(floor[0] - 0.03, front[:, 0].max() * 1.02), ylim=(floor[1] - 0.03, front[:, 1].max() * 1.02))
    axes.set_title("Least squares, one pair of parameters for two tasks, no heads", fontsize=10)
    axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return picture
