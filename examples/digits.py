"""What the examples share: 5,000 handwritten digits that come with the package, questions about them, a small network.

Nothing here is about balancing.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from excessmtl.lab.data.digits import load_digits

CLASSES = {"digit": 10, "odd": 2, "loop": 2}
"""Which digit is it? Is it odd? Does it have a closed loop, as 0, 6, 8 and 9 do?"""
TASKS = list(CLASSES)
Labels = dict[str, Tensor]


def load(quick: bool = False) -> tuple[tuple[Tensor, Labels], tuple[Tensor, Labels]]:
    """Pictures [n, 784] and labels by task, to train on and to test on."""
    train, test = load_digits()
    if quick:
        train = train[:1000]
    return (_inputs(train.images), _labels(train.labels)), (_inputs(test.images), _labels(test.labels))


def _inputs(images: Tensor) -> Tensor:
    return images.flatten(1).float() / 255


def _labels(digit: Tensor) -> Labels:
    loop = torch.isin(digit, torch.tensor([0, 6, 8, 9]))
    return {"digit": digit, "odd": digit % 2, "loop": loop.long()}


def with_bad_labels(labels: Labels, task: str, share: float) -> Labels:
    """The same labels, with a share of one task's replaced by random ones."""
    bad = torch.rand(len(labels[task])) < share
    return {**labels, task: torch.where(bad, torch.randint(CLASSES[task], bad.shape), labels[task])}


def batches(x: Tensor, labels: Labels, size: int = 64) -> Iterator[tuple[Tensor, Labels]]:
    """One epoch in random order."""
    for rows in torch.randperm(len(x)).split(size):
        yield x[rows], {task: label[rows] for task, label in labels.items()}


class Network(nn.Module):
    """An encoder that all tasks share, and a head for each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.heads = nn.ModuleDict({task: nn.Linear(64, classes) for task, classes in CLASSES.items()})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Task -> scores of the classes."""
        z = self.encoder(x)
        return {task: head(z) for task, head in self.heads.items()}


def losses_of(outputs: Mapping[str, Tensor], labels: Labels) -> dict[str, Tensor]:
    """Task -> mean loss of the batch."""
    return {task: cross_entropy(output, labels[task]) for task, output in outputs.items()}


@torch.no_grad()
def accuracy(network: nn.Module, x: Tensor, labels: Labels) -> dict[str, float]:
    """Task -> share of right answers."""
    network.eval()
    found = {task: (output.argmax(1) == labels[task]).float().mean().item() for task, output in network(x).items()}
    network.train()
    return found


def print_table(columns: Mapping[str, Mapping[str, float]]) -> None:
    """A line per task, a column per heading."""
    names = list(next(iter(columns.values())))
    width = max(len(name) for name in names)
    print("task".ljust(width), *(heading.rjust(max(len(heading), 8)) for heading in columns), sep="  ")
    for name in names:
        cells = (f"{column[name]:.3f}".rjust(max(len(heading), 8)) for heading, column in columns.items())
        print(name.ljust(width), *cells, sep="  ")
