"""Figure 1 of the paper from a real two-task problem: the front, both kinds of balance, and where each method ends."""

from typing import Any

import numpy as np
from joblib import Parallel, delayed
from matplotlib.figure import Figure as Canvas

from excessmtl.lab.paper.plans import Scale
from excessmtl.lab.paper.registry import Drawing, canvas, figure
from excessmtl.lab.paper.theory.convergence import Row
from excessmtl.lab.paper.theory.descent import ALGORITHM, descend
from excessmtl.lab.paper.theory.library import train
from excessmtl.lab.paper.theory.optimum import Solved, balance, solve, weighted_minimum
from excessmtl.lab.paper.theory.problems import Array, Problem
from excessmtl.pareto import pareto_front

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("uniform", {}),
    "GradNorm": ("gradnorm", {}),
    "MGDA": ("mgda", {}),
    "GroupDRO": ("groupdro", {}),
    "IMTL": ("imtl", {}),
    "ExcessMTL, paper's estimate": ("excess", {"estimator": "paper"}),
    "ExcessMTL, robust (ours)": ("excess", {"estimator": "robust"}),
}
_MARKERS = "osD^vP*X"


def two_tasks(samples: int = 100, seed: int = 0) -> Problem:
    """Least squares with one pair of parameters for two tasks that want opposite ones; labels of task 1 are noisy.

    Inputs of task 2 are shorter, so that equal weights are not balanced in any sense.
    """
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(2, samples, 2))
    features *= np.array([1.0, 0.6])[:, None, None] / np.linalg.norm(features, axis=2, keepdims=True)
    wanted = np.array([[0.8, 0.3], [-0.8, 0.3]])
    targets = np.einsum("mnd,md->mn", features, wanted)
    targets[0] += generator.uniform(-0.6, 0.6, samples)
    return Problem("least squares", features, targets, 1.5)


def endings(solved: Solved, steps: int, runs: int) -> list[Row]:
    """Each method's risks at the mean of the last quarter of its iterates; the front's two balances come first."""
    problem = solved.problem
    rows = [
        _row("equal losses (min max loss)", problem, balance(problem, np.zeros(2))[0][None], np.nan),
        _row("equal excess risks (min max excess)", problem, solved.theta[None], float(solved.weights[0])),
    ]
    at = descend(solved, 16 * steps, max(runs, 2), 0, ALGORITHM)
    rows.append(_row("ExcessMTL, excess risks known", problem, at.mean_theta, float(at.mean_weights[:, 0].mean())))
    jobs = [delayed(_end)(problem, *chosen, steps, seed) for chosen in METHODS.values() for seed in range(runs)]
    found = Parallel(n_jobs=2)(jobs)
    for name, first in zip(METHODS, range(0, len(jobs), runs), strict=True):
        thetas, weights = zip(*found[first : first + runs], strict=True)
        rows.append(_row(name, problem, np.array(thetas), float(np.mean(weights))))
    return rows


def _end(problem: Problem, method: str, options: dict[str, Any], steps: int, seed: int) -> tuple[Array, float]:
    thetas, weights = train(problem, method, options, steps, 0.05, batch=16, seed=seed)
    return thetas[-steps // 4 :].mean(0), float(weights[-steps // 4 :, 0].mean())


def _row(name: str, problem: Problem, thetas: Array, weight: float) -> Row:
    risks = problem.risks(thetas)
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
    solved = solve(two_tasks())
    rows = endings(solved, *((2000, 2) if scale == "quick" else (10_000, 10)))
    share = np.linspace(0.001, 0.999, 301)
    front = solved.problem.risks(weighted_minimum(solved.problem, np.stack((share, 1 - share), 1)).theta)
    assert pareto_front(front).all()  # convex tasks: every weighting gives a point of the front
    rows = [{**row, "floor_1": solved.floors[0], "floor_2": solved.floors[1]} for row in rows]
    curve = [{"weight_1": w, "loss_1": a, "loss_2": b} for w, (a, b) in zip(share, front, strict=True)]
    return Drawing({"": rows, "_front": curve[::5]}, {"": _picture(solved, front, rows)})


def _picture(solved: Solved, front: Array, rows: list[Row]) -> Canvas:
    picture = canvas(8.6, 4.8)
    axes = picture.subplots()
    floor = solved.floors
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
