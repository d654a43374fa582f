"""Made-up rows of a table of runs, copies of real run folders with other numbers, and what is in such folders."""

import json
import shutil

import numpy as np
import pandas as pd

from excessmtl.lab.compare.collect import NESTED, PLAIN
from excessmtl.lab.runs.folder import folder_of

SHARES = ("accuracy", "pixel_accuracy", "within_11.25")
ACCURACY, ERROR = ("accuracy", True), ("nmse", False)


def made_up(label="excess", noise=0.8, seed=0, scores=None, kinds=None, noisy_tasks=("b",), **changes):
    """A row of `collect`: two tasks, the second noisy, scored by accuracy unless told otherwise.

    `kinds`: task -> (metric, whether higher is better).
    """
    scores = {"a": 0.9, "b": 0.5} if scores is None else scores
    kinds = dict.fromkeys(scores, ACCURACY) if kinds is None else kinds
    alike = len(set(kinds.values())) == 1

    def mean(tasks):
        values = [scores[task] for task in tasks]
        return sum(values) / len(values) if alike and values and None not in values else None

    row = {
        "folder": f"{label}/{noise}/{seed}",
        "benchmark": "digits",
        "source": "made up",
        "label": label,
        "method": label.split()[0],
        "options": {},
        "code": "not recorded",
        "method_options": {},
        "settings": {},
        "noise": noise,
        "noise_kind": "uniform",
        "loss": "plain",
        "optimiser": "adam",
        "seed": seed,
        "epochs": 3,
        "noisy_tasks": list(noisy_tasks),
        "primary_metric": {task: kind for task, (kind, _) in kinds.items()},
        "higher_is_better": {task: higher for task, (_, higher) in kinds.items()},
        "units": {task: "share" if kind in SHARES else "" for task, (kind, _) in kinds.items()},
        "scores": scores,
        "mean_scores": scores,
        "metrics": {},
        "clean_score": mean([task for task in scores if task not in noisy_tasks]),
        "noisy_score": mean([task for task in scores if task in noisy_tasks]),
        "overall_score": mean(scores),
        "weights": dict.fromkeys(scores, 1 / len(scores)),
        "clean_weight": 0.5,
        "seconds_per_step": 0.01,
    }
    return {**row, **changes}


def run(label, noise, seed, scores, metrics=ACCURACY, *, benchmark="toy", noisy=("noisy",), **changes):
    """The same with the tasks of `scores`; `metrics`: one (name, higher is better), or task -> that."""
    kinds = metrics if isinstance(metrics, dict) else dict.fromkeys(scores, metrics)
    noisy = [task for task in noisy if task in scores]
    return made_up(label, noise, seed, scores, kinds, noisy, benchmark=benchmark, **changes)


def finish(configs, out, change):
    """The summary of every run, as if it had been trained; `change` gives its scores and other entries."""
    for config in configs:
        entries = {"scores": {"clean": 0.5}, **change(config)}
        (out / folder_of(config)).mkdir(parents=True)
        summary = run(config.name, config.noise, config.seed, benchmark=config.benchmark, noisy=(), **entries)
        (out / folder_of(config) / "summary.json").write_text(json.dumps(summary))


def table(*rows):
    return pd.DataFrame(list(rows), columns=["folder", *PLAIN, *NESTED])


def steps_of(folder):
    """The arrays of steps.npz."""
    with np.load(folder / "steps.npz") as steps:
        return dict(steps)


def without_time(summary):
    return {key: value for key, value in summary.items() if key != "seconds_per_step"}


def copied(source, target, steps=None, **changes):
    """A run folder with the numbers of another, moved a little, and other entries in its summary.

    `steps`: how long it pretends to have been.
    """
    generator = np.random.default_rng(sum(str(target).encode()))
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("checkpoint", "tensorboard"))
    summary = json.loads((source / "summary.json").read_text())
    summary |= changes
    moved = {task: score * generator.uniform(0.9, 1.1) for task, score in summary["scores"].items()}
    summary["scores"] = moved
    if summary["overall_score"] is not None:
        summary["overall_score"] = sum(moved.values()) / len(moved)
    (target / "summary.json").write_text(json.dumps(summary))
    if steps is not None:
        with np.load(source / "steps.npz") as known:
            shape = (steps, len(known["tasks"]))
            noise = {name: generator.uniform(0.1, 2, shape).astype(np.float32) for name in known if name != "tasks"}
            np.savez(target / "steps.npz", tasks=known["tasks"], **noise)
    return target
