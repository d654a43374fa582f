"""A mixture of experts with a gate per task: the experts are what all tasks share.

python examples/mmoe.py
"""

import argparse

import torch
from digits import CLASSES, TASKS, accuracy, batches, load, losses_of, print_table
from torch import Tensor, nn

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
quick = parser.parse_args().quick


class MixtureOfExperts(nn.Module):
    """Experts are mixed by a gate per task; a head reads the mixture."""

    def __init__(self, experts: int = 4, width: int = 64) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(784, width), nn.ReLU()) for _ in range(experts))
        self.gates = nn.ModuleDict({task: nn.Linear(784, experts) for task in TASKS})
        self.heads = nn.ModuleDict({task: nn.Linear(width, classes) for task, classes in CLASSES.items()})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Task -> scores of the classes."""
        seen = torch.stack([expert(x) for expert in self.experts], 1)
        mixed = {task: (gate(x).softmax(-1).unsqueeze(-1) * seen).sum(1) for task, gate in self.gates.items()}
        return {task: head(mixed[task]) for task, head in self.heads.items()}


torch.manual_seed(0)
train, test = load(quick)
network = MixtureOfExperts()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
balancer = excessmtl.create("excess", tasks=TASKS, shared=network.experts)  # gates and heads are the tasks' own

for _ in range(1 if quick else 5):
    for x, labels in batches(*train):
        optimizer.zero_grad()
        step = balancer.backward(losses_of(network(x), labels))
        optimizer.step()

print_table({"weight": dict(zip(TASKS, step.weights.tolist(), strict=True)), "accuracy": accuracy(network, *test)})
