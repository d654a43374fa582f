"""What a balancer sees and decides, step by step: losses, excess risks and weights, drawn into a picture.

Four fifths of the labels of one task are random. Its excess risk falls at once, and with it its weight.

python examples/plot_weights.py
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from digits import Network, accuracy, batches, load, losses_of, print_table, with_bad_labels
from matplotlib.figure import Figure

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
parser.add_argument("--out", type=Path, default=Path("weights.png"), help="the picture; default: weights.png")
arguments = parser.parse_args()

TASKS, NOISY = ["odd", "loop"], "loop"
PANELS = {"losses": "loss", "excess_risks": "excess risk: what can still be learned", "weights": "weight"}

torch.manual_seed(0)
(x, labels), test = load(arguments.quick)
labels = with_bad_labels(labels, NOISY, 0.8)
network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
balancer = excessmtl.create("excess", tasks=TASKS, shared=network.encoder)

steps = []
for _ in range(1 if arguments.quick else 5):
    for pictures, their_labels in batches(x, labels):
        outputs = network(pictures)
        losses = losses_of({task: outputs[task] for task in TASKS}, their_labels)
        optimizer.zero_grad()
        steps.append(balancer.backward(losses))  # its numbers stay on the device until they are read below
        optimizer.step()

figure = Figure(figsize=(9, 2.7), layout="constrained")
for axes, (name, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
    numbers = pd.DataFrame([getattr(step, name).tolist() for step in steps], columns=TASKS)
    axes.plot(numbers.rolling(15, min_periods=1).mean(), linewidth=1.8)
    axes.set(title=title, xlabel="step", ylim=(0, None))
    axes.grid(alpha=0.3)
names = [f"{task}: 80 % of its labels are random" if task == NOISY else task for task in TASKS]
figure.legend(figure.axes[0].lines, names, loc="outside lower center", ncols=3, frameon=False)
figure.savefig(arguments.out, dpi=150)

right = accuracy(network, *test)
print_table({"accuracy": {task: right[task] for task in TASKS}})
