"""The picture of the page on how it works: `python -m research.how_it_works` trains and draws it, in a minute.

Three questions about the bundled digits, four fifths of the labels of one replaced by random ones, the default method.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as loss

import excessmtl
from excessmtl.lab.data.digits import load_digits

TASKS = ["odd", "large", "loop"]
"""Is the digit odd? Is it 5 or more? Does it have a closed loop?"""
NOISY, SHARE, BATCH = "loop", 0.8, 64
COLOURS = {"odd": "#0868ac", "large": "#41a6a0", "loop": "#d95f02"}
FIGURE = Path("docs", "figures", "how-it-works.png")


def courses(epochs: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Losses, the part of them that training can still remove, and weights: a row per step, a column per task."""
    torch.manual_seed(seed)
    digits = load_digits()[0]
    x, digit = digits.images.flatten(1).float() / 255, digits.labels
    labels = {"odd": digit % 2, "large": digit >= 5, "loop": torch.isin(digit, torch.tensor([0, 6, 8, 9]))}
    bad = torch.rand(len(digit)) < SHARE
    labels[NOISY] = torch.where(bad, torch.rand(len(digit)) < 0.5, labels[NOISY])
    targets = {task: label.float() for task, label in labels.items()}
    encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    heads = nn.ModuleDict({task: nn.Linear(64, 1) for task in TASKS})
    optimizer = torch.optim.Adam([*encoder.parameters(), *heads.parameters()], lr=1e-3)
    balancer = excessmtl.create("excess", tasks=TASKS, shared=encoder)
    steps = []
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x)), BATCH):
            z = encoder(x[rows])
            losses = {task: loss(heads[task](z).squeeze(1), targets[task][rows]) for task in TASKS}
            optimizer.zero_grad()
            steps.append(balancer.backward(losses))
            optimizer.step()
    names = ("losses", "excess_risks", "weights")
    return {name: pd.DataFrame([getattr(step, name).tolist() for step in steps], columns=TASKS) for name in names}


def draw(found: dict[str, pd.DataFrame], path: Path) -> None:
    """Three panels, a line per task; losses and weights are means over the last 15 steps."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.7), layout="constrained")
    drawn = {
        "loss": found["losses"].rolling(15, min_periods=1).mean(),
        "excess risk: what can still be learned": found["excess_risks"],
        "weight": found["weights"].rolling(15, min_periods=1).mean(),
    }
    for axes, (title, course) in zip(panels, drawn.items(), strict=True):
        for task in TASKS:
            axes.plot(course[task], color=COLOURS[task], label=task, linewidth=1.8)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step", fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)
    names = [f"{task}: 80 % of its labels are random" if task == NOISY else task for task in TASKS]
    figure.legend(names, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    draw(courses(epochs=6), FIGURE)
