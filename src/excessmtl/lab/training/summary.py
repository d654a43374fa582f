"""The end of a run in one small table of numbers (summary.json)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from excessmtl.lab.data.base import Benchmark
from excessmtl.lab.training.choice import chosen_epoch, validation_error
from excessmtl.lab.training.config import Resolved
from excessmtl.lab.training.run_folder import Row

LAST_K = 5
"""How many last epochs `mean_scores` averages over."""


def summarise(
    config: Resolved,
    benchmark: Benchmark,
    rows: Sequence[Row],
    weights: np.ndarray | None,
    seconds_per_step: float,
    units: Mapping[str, float],
    decided: Mapping[str, Any],
) -> dict[str, Any]:
    """Scores of the last epoch, and those of the epoch that the validation split chooses; never of the best one.

    `weights`: [steps, m] of the last epoch. `units`: of the tasks' losses, for a mean over tasks.
    `decided`: all options of the method (`method_options`) and the fingerprint of the code (`code`).
    What is not finite, in a run that has diverged, is None: JSON has no such numbers.
    """
    primary = {task.name: task.kind.primary for task in benchmark.tasks}
    scores = {name: rows[-1][f"test/{name}/{metric.name}"] for name, metric in primary.items()}
    epoch = chosen_epoch(rows, benchmark.tasks, units)
    best = None if epoch is None else rows[epoch]
    chosen = None if best is None else {name: best[f"test/{name}/{metric.name}"] for name, metric in primary.items()}
    recent = rows[-LAST_K:]
    averages = {
        name: float(np.mean([row.get(f"test/{name}/{metric.name}", math.nan) for row in recent]))
        for name, metric in primary.items()
    }
    noisy = list(config.noisy_tasks)
    clean = [name for name in scores if name not in noisy]
    alike = len({(metric.name, metric.unit) for metric in primary.values()}) == 1
    share = None if weights is None else mean_weights(weights, list(scores))
    summary = {
        "benchmark": benchmark.name,
        "source": benchmark.source,
        "method": config.method,
        "label": config.label,
        "options": dict(config.options),
        **decided,
        "settings": settings_of(config),
        "loss": config.loss,
        "noise": config.noise,
        "noise_kind": config.noise_kind,
        "noisy_validation": config.noisy_validation,
        "noisy_tasks": noisy,
        "seed": config.seed,
        "epochs": len(rows),
        "optimiser": config.optimiser,
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "primary_metric": {name: metric.name for name, metric in primary.items()},
        "higher_is_better": {name: metric.higher_is_better for name, metric in primary.items()},
        "units": {name: metric.unit for name, metric in primary.items()},
        "scores": scores,
        "mean_scores": averages,
        "mean_scores_epochs": len(recent),
        "metrics": {name.removeprefix("test/"): value for name, value in rows[-1].items() if name.startswith("test/")},
        "clean_score": mean_of(scores, clean) if alike else None,
        "noisy_score": mean_of(scores, noisy) if alike else None,
        "overall_score": mean_of(scores, list(scores)) if alike else None,
        "validation_scores": {
            name: rows[-1].get(f"validation/{name}/{metric.name}") for name, metric in primary.items()
        },
        "validation_error": validation_error(rows[-1], benchmark.tasks, units),
        "chosen_epoch": epoch,
        "chosen_validation_error": None if best is None else validation_error(best, benchmark.tasks, units),
        "chosen_scores": chosen,
        "chosen_clean_score": mean_of(chosen, clean) if alike and chosen else None,
        "chosen_noisy_score": mean_of(chosen, noisy) if alike and chosen else None,
        "chosen_overall_score": mean_of(chosen, list(scores)) if alike and chosen else None,
        "weights": share,
        "clean_weight": None if share is None else sum(share[name] for name in clean),
        "seconds_per_step": seconds_per_step,
        "completed": True,
    }
    found: dict[str, Any] = finite(summary)
    return found


def settings_of(config: Resolved) -> dict[str, Any]:
    """What else of a configuration changes what is computed; runs that are averaged have the same."""
    names = [
        *("architecture", "batch_size", "optimiser_options", "schedule", "warmup_steps", "limit_batches"),
        *("benchmark_options", "exclude_true", "redraw_each_epoch", "noisy_validation", "precision"),
    ]
    plain = config.to_dict()
    own = {} if config.noise_seed == config.seed else {"noise_seed": config.noise_seed}
    return {**{name: plain[name] for name in names}, **own}


def finite(value: Any) -> Any:
    """The same with None for every number that is not finite, since JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: finite(own) for key, own in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def mean_of(scores: Mapping[str, float], names: Sequence[str]) -> float | None:
    """Of the scores of these tasks; None where there is no task."""
    return float(np.mean([scores[name] for name in names])) if names else None


def mean_weights(weights: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Mean over the last epoch, on the simplex whatever the method's own scale."""
    mean = np.nanmean(weights, axis=0, dtype=np.float64)
    total = mean.sum()
    shares = mean / total if total else np.full(len(names), 1 / len(names))
    return dict(zip(names, shares.tolist(), strict=True))
