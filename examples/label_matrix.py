"""One matrix of predictions, one of labels, both [batch, tasks]: a trainer that knows nothing of balancing.

    python examples/label_matrix.py

Libraries for recommendation train like this. `fit` stands for theirs: it takes a loss function and calls `backward`.
"""

import argparse
from collections.abc import Callable

import torch
from digits import load, print_table
from torch import Tensor, nn

import excessmtl
from excessmtl.integrations import MatrixLoss

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
quick = parser.parse_args().quick
TASKS = ["odd", "loop", "large"]


class Model(nn.Module):
    """Probabilities [batch, tasks], the outputs of one tower per task beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(784, 128), nn.ReLU())
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid()) for _ in TASKS
        )

    def forward(self, x: Tensor) -> Tensor:
        """Pictures -> probabilities."""
        shared = self.bottom(x)
        return torch.cat([tower(shared) for tower in self.towers], 1)


def fit(model: nn.Module, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor], epochs: int) -> None:
    """A trainer of somebody else."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()


def matrix(labels: dict[str, Tensor]) -> Tensor:
    """[samples, tasks], 0 or 1."""
    return torch.stack([labels["odd"], labels["loop"], labels["digit"] >= 5], 1).float()


torch.manual_seed(0)
(x, labels), (test_x, test_labels) = load(quick)
y = matrix(labels)
y[torch.rand(len(y)) < 0.5, 2] = torch.nan  # half of one task's labels are missing

model = Model()
criterion = excessmtl.MultiTaskLoss(dict.fromkeys(TASKS, "binary"), shared=model.bottom)
fit(model, x, y, loss=MatrixLoss(criterion, columns=model.towers), epochs=1 if quick else 8)

with torch.no_grad():
    right = ((model(test_x) > 0.5) == matrix(test_labels).bool()).float().mean(0)
columns = {"weight": criterion.balancer.last_step.weights, "accuracy": right}
print_table({heading: dict(zip(TASKS, column.tolist(), strict=True)) for heading, column in columns.items()})
