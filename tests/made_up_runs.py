"""Tables and folders of runs that nobody has trained, in which it is known what holds."""

import numpy as np
import pandas as pd

from excessmtl.lab.paper.subjects import METHODS
from report_data import made_up, table

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


def made_up_run(benchmark, shown, noise, seed, *, clean, noisy, weight, losses=(0.1, 0.1), **changes):
    """A row of `collect`: all clean tasks score `clean`, all noisy ones `noisy`, the test losses are `losses`."""
    clean_tasks, noisy_tasks, metric = TASKS[benchmark]
    scores = {**dict.fromkeys(clean_tasks, clean), **dict.fromkeys(noisy_tasks, noisy)}
    measured = {f"{task}/{metric}": score for task, score in scores.items()}
    measured |= {f"{task}/loss": losses[task in noisy_tasks] for task in scores}
    kinds = dict.fromkeys(scores, (metric, metric == "accuracy"))
    return _row(benchmark, shown, noise, seed, scores, kinds, noisy_tasks, weight, metrics=measured, **changes)


def made_up_dense_run(benchmark, shown, noise, seed, *, weight, **scores):
    """The same for three tasks with metrics of their own."""
    measured = {f"{task}/{DENSE[task][0]}": score for task, score in scores.items()}
    measured |= {f"normals/within_{angle}": scores["normals"] + 0.2 for angle in ("22.5", "30")}
    return _row(benchmark, shown, noise, seed, scores, DENSE, ["segmentation"], weight, metrics=measured)


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
    return table(*rows)


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


def _row(benchmark, shown, noise, seed, scores, kinds, noisy, weight, epochs=None, source=None, **changes):
    method = METHODS[shown]
    options = dict(method.options)
    if benchmark in ("nyuv2", "synthetic-rooms") and options == {"estimator": "paper"}:
        options |= {"normalize": "initial", "warmup_steps": 300}  # as the benchmark's preset completes them
    known = {"benchmark": benchmark, "method": method.name, "options": options, "loss": method.loss}
    known |= {"folder": f"{benchmark}/{shown}/{noise:g}/{seed}", "source": source or SOURCES[benchmark]}
    known |= {"epochs": epochs or EPOCHS.get(benchmark, 15), "seconds_per_step": 0.001, "clean_weight": weight}
    if weight is None:
        known["weights"] = None
    return made_up(f"label of {shown}", float(noise), seed, scores, kinds, noisy, **known, **changes)
