"""Labels in one table with holes: most digits carry a label for some tasks only.

python examples/missing_labels.py
"""

import argparse

import torch
from digits import load, print_table
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
quick = parser.parse_args().quick

torch.manual_seed(0)
(x, labels), (test_x, test_labels) = load(quick)
TASKS = ["odd", "loop", "large"]
SHARE_LABELLED = torch.tensor([0.9, 0.3, 0.1])


def table(labels: dict[str, torch.Tensor]) -> torch.Tensor:
    """[samples, tasks], 0 or 1."""
    return torch.stack([labels["odd"], labels["loop"], labels["digit"] >= 5], 1).float()


targets = table(labels)
targets[torch.rand(targets.shape) > SHARE_LABELLED] = torch.nan  # a hole

encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
head = nn.Linear(64, len(TASKS))  # one layer, one output per task
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
balancer = excessmtl.create("excess", tasks=TASKS, shared=encoder)

for _ in range(1 if quick else 8):
    for rows in torch.randperm(len(x)).split(64):
        outputs = head(encoder(x[rows]))
        losses, mask = excessmtl.losses.by_task(outputs, targets[rows], TASKS, loss=binary_cross_entropy_with_logits)
        optimizer.zero_grad()
        step = balancer.backward(losses, mask=mask)
        optimizer.step()

with torch.no_grad():
    right = ((head(encoder(test_x)) > 0) == table(test_labels).bool()).float().mean(0)
columns = {"labelled": SHARE_LABELLED, "weight": step.weights, "accuracy": right}
print_table({heading: dict(zip(TASKS, column.tolist(), strict=True)) for heading, column in columns.items()})
