"""Tables and folders of runs that nobody has trained, in which it is known what holds."""

import numpy as np
import pandas as pd

from excessmtl.lab.compare.collect import NESTED, PLAIN
from excessmtl.lab.paper.methods import METHODS

SOURCES = {
    "multimnist": "MNIST, 60,000 + 10,000 digits, 60,000 pairs, canvas 36",
    "office-home": "OfficeHome: 15,588 pictures, 4 domains, 65 classes, 64 px",
    "digit-domains": "bundled digits in 4 drawn styles, 1,000 digits each",
    "sarcos": "SARCOS, official files, 0 training rows that are test rows left out",
    "simulated-arm": "simulated 7-joint arm, 6,000 rows",
    "nyuv2": "NYUv2, 795 + 654 scenes",
    "synthetic-rooms": "ray-cast rooms, 200 + 60 scenes, 48 x 64",
}
EPOCHS = {"office-home": 100, "sarcos": 100, "nyuv2": 200}
"""Of the paper's recipes; 15 on the others."""
TASKS = {
    "multimnist": (["top_left"], ["bottom_right"], "accuracy"),
    "office-home": (["Art", "Clipart", "Real_World"], ["Product"], "accuracy"),
    "digit-domains": (["outline", "shaded", "turned"], ["plain"], "accuracy"),
    "sarcos": ([f"joint_{i}" for i in range(3, 8)], ["joint_1", "joint_2"], "nmse"),
    "simulated-arm": ([f"joint_{i}" for i in range(3, 8)], ["joint_1", "joint_2"], "nmse"),
}
DENSE = {"segmentation": ("pixel_accuracy", True), "depth": ("rel_error", False), "normals": ("within_11.25", True)}


def made_up_run(benchmark, shown, noise, seed, *, clean, noisy, weight, losses=(0.1, 0.1), epochs=None, source=None):
    """A row of `collect`: all clean tasks score `clean`, all noisy ones `noisy`, the test losses are `losses`."""
    clean_tasks, noisy_tasks, metric = TASKS[benchmark]
    scores = {**dict.fromkeys(clean_tasks, clean), **dict.fromkeys(noisy_tasks, noisy)}
    higher = metric == "accuracy"
    measured = {f"{task}/{metric}": score for task, score in scores.items()}
    measured |= {f"{task}/loss": losses[task in noisy_tasks] for task in scores}
    row = _row(benchmark, shown, noise, seed, weight, epochs, source)
    return row | {
        "clean_score": clean,
        "noisy_score": noisy,
        "overall_score": float(np.mean(list(scores.values()))),
        "noisy_tasks": noisy_tasks,
        "primary_metric": dict.fromkeys(scores, metric),
        "higher_is_better": dict.fromkeys(scores, higher),
        "units": dict.fromkeys(scores, "share" if higher else "ratio"),
        "scores": scores,
        "mean_scores": scores,
        "metrics": measured,
        "weights": None if weight is None else _shares(clean_tasks, noisy_tasks, weight),
    }


def made_up_dense_run(benchmark, shown, noise, seed, *, segmentation, depth, normals, weight, epochs=None):
    """The same for three tasks with metrics of their own."""
    scores = {"segmentation": segmentation, "depth": depth, "normals": normals}
    measured = {f"{task}/{DENSE[task][0]}": score for task, score in scores.items()}
    measured |= {"normals/within_22.5": normals + 0.2, "normals/within_30": normals + 0.3, "depth/abs_error": depth}
    return _row(benchmark, shown, noise, seed, weight, epochs, None) | {
        "noisy_tasks": ["segmentation"],
        "primary_metric": {task: metric for task, (metric, _) in DENSE.items()},
        "higher_is_better": {task: higher for task, (_, higher) in DENSE.items()},
        "units": {task: "share" if higher else "ratio" for task, (_, higher) in DENSE.items()},
        "scores": scores,
        "mean_scores": scores,
        "metrics": measured,
        "weights": _shares(["depth", "normals"], ["segmentation"], weight or 2 / 3),
    }


def with_tasks_called(frame, names):
    """The runs of another data set: the same numbers for tasks of other names."""
    frame = frame.copy()
    for column in ("scores", "mean_scores", "primary_metric", "higher_is_better", "units", "weights"):
        frame[column] = [own and {names[task]: value for task, value in own.items()} for own in frame[column]]
    frame["noisy_tasks"] = [[names[task] for task in own] for own in frame["noisy_tasks"]]
    return frame


PACS = {"Art": "art_painting", "Clipart": "sketch", "Real_World": "photo", "Product": "cartoon"}


def as_frame(rows):
    """As `collect` gives it."""
    return pd.DataFrame(rows, columns=["folder", *PLAIN, *NESTED])


def write_course(folder, tasks, noisy, *, weights, losses, risks, epochs=10):
    """steps.npz and metrics.csv of a run; each a function of (how far training is, whether the task is noisy)."""
    folder.mkdir(parents=True)
    done = np.linspace(0, 1, 20 * epochs)
    curves = {
        name: np.stack([[curve(t, task in noisy) for t in done] for task in tasks], axis=1)
        for name, curve in (("weights", weights), ("losses", losses), ("excess_risks", risks))
    }
    np.savez(folder / "steps.npz", tasks=np.array(tasks), **curves)
    table = {"epoch": range(epochs)}
    for index, task in enumerate(tasks):
        table[f"train/{task}/loss"] = curves["losses"][:, index].reshape(epochs, -1).mean(1)
        table[f"test/{task}/accuracy"] = np.linspace(0.1, 0.9, epochs)
    pd.DataFrame(table).to_csv(folder / "metrics.csv", index=False)


def _row(benchmark, shown, noise, seed, weight, epochs, source):
    method = METHODS[shown]
    options = dict(method.options)
    if benchmark in ("nyuv2", "synthetic-rooms") and options == {"estimator": "paper"}:
        options |= {"normalize": "initial", "warmup_steps": 300}  # as the benchmark's preset completes them
    return {
        "folder": f"{benchmark}/{shown}/{noise:g}/{seed}",
        "benchmark": benchmark,
        "source": source or SOURCES[benchmark],
        "label": f"label of {shown}",
        "method": method.name,
        "options": options,
        "code": "not recorded",
        "method_options": {},
        "settings": {},
        "noise": float(noise),
        "noise_kind": "uniform",
        "loss": "plain",
        "optimiser": "adam",
        "seed": seed,
        "epochs": epochs or EPOCHS.get(benchmark, 15),
        "clean_score": None,
        "noisy_score": None,
        "overall_score": None,
        "clean_weight": weight,
        "seconds_per_step": 0.001,
    }


def _shares(clean, noisy, weight):
    return {**dict.fromkeys(clean, weight / len(clean)), **dict.fromkeys(noisy, (1 - weight) / len(noisy))}
