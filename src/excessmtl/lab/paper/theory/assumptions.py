"""Where the proof of Theorem 3.1 assumes what Algorithm 1 does not do: the same problems, one change at a time."""

from dataclasses import replace

from excessmtl.lab.paper.theory.convergence import Row, measure
from excessmtl.lab.paper.theory.descent import ALGORITHM, PROOF, step_sizes
from excessmtl.lab.paper.theory.library import train
from excessmtl.lab.paper.theory.optimum import Solved

VARIANTS = {
    "the proof: one task a step": PROOF,
    "all tasks a step": ALGORITHM,
    "all tasks, new weights at once": replace(ALGORITHM, fresh=True),
    "all tasks, no projection": replace(ALGORITHM, projected=False),
    "all tasks, paper's estimate": replace(ALGORITHM, risks="paper"),
    "Algorithm 1 (all of these)": replace(ALGORITHM, risks="paper", projected=False, fresh=True),
}


def compare(solved: Solved, horizons: list[int], runs: int, seed: int) -> list[Row]:
    """One row per variant and horizon."""
    return [
        {"variant": name, **row}
        for name, variant in VARIANTS.items()
        for row in measure(solved, horizons, runs, seed, variant)
    ]


def estimators(solved: Solved, steps: int, batch: int, runs: int) -> list[Row]:
    """The library's ExcessMTL with both estimators, and uniform weights, with the proof's step sizes for `steps` steps.

    Means over runs. The robust estimator has weights of its own making in place of the multiplicative update, so
    nothing in the theorem speaks of it: it is here because it is what users run.
    """
    problem, rows = solved.problem, []
    eta_theta, eta_alpha = step_sizes(solved, steps, ALGORITHM)
    chosen: dict[str, tuple[str, dict[str, object]]] = {
        "uniform weights": ("uniform", {}),
        "paper's estimate": ("excess", {"estimator": "paper", "step_size": eta_alpha}),
        "robust estimate": ("excess", {"estimator": "robust"}),
    }
    for name, (method, options) in chosen.items():
        found = [train(problem, method, options, steps, eta_theta, batch=batch, seed=seed) for seed in range(runs)]
        mean = sum(solved.excess_risks(thetas.mean(0)).max() for thetas, _ in found) / runs
        last = sum(solved.excess_risks(thetas[-1]).max() for thetas, _ in found) / runs
        noisy = sum(float(weights[-steps // 4 :, 1::2].sum(1).mean()) for _, weights in found) / runs
        rows.append(
            {
                "problem": problem.kind,
                "tasks": problem.tasks,
                "estimator": name,
                "steps": steps,
                "batch": batch,
                "runs": runs,
                "worst_task": mean - solved.value,
                "last_iterate": last - solved.value,
                "noisy_weight": noisy,
                "noisy_weight_of_the_saddle_point": float(solved.weights[1::2].sum()),
            }
        )
    return rows
