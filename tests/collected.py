"""Collected runs out of thin air, for tests of what is made of them."""

import pandas as pd

ACCURACY, ERROR = ("accuracy", True), ("nmse", False)


def run(label, noise, seed, scores, metrics=ACCURACY, *, benchmark="toy", noisy=("noisy",), method=None):
    """A row of `collect`. `scores`: task -> score; `metrics`: one (name, higher is better), or task -> that."""
    by_task = metrics if isinstance(metrics, dict) else dict.fromkeys(scores, metrics)
    return {
        "folder": "",
        "benchmark": benchmark,
        "source": "made up",
        "label": label,
        "method": method or label.split()[0],
        "noise": noise,
        "seed": seed,
        "clean_weight": 0.5,
        "scores": scores,
        "noisy_tasks": [task for task in noisy if task in scores],
        "primary_metric": {task: name for task, (name, _) in by_task.items()},
        "higher_is_better": {task: higher for task, (_, higher) in by_task.items()},
    }


def frame(*rows):
    return pd.DataFrame(list(rows))
