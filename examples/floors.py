"""A task that must not be given up, though its labels are bad: a floor under its share of the weight.

python examples/floors.py
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, batches, load, losses_of, print_table, with_bad_labels

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
quick = parser.parse_args().quick


def train(protect: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Each task's share of the weight in the last epoch, and its accuracy."""
    torch.manual_seed(0)
    (x, labels), test = load(quick)
    labels = with_bad_labels(labels, "loop", 0.6)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    balancer = excessmtl.create("excess", tasks=TASKS, shared=network.encoder, protect=protect)
    for _ in range(1 if quick else 5):
        shares = []
        for pictures, their_labels in batches(x, labels):
            optimizer.zero_grad()
            step = balancer.backward(losses_of(network(pictures), their_labels))
            optimizer.step()
            shares.append(step.weights / step.weights.sum())
    mean = torch.stack(shares).mean(0).tolist()
    return dict(zip(TASKS, mean, strict=True)), accuracy(network, *test)


columns = {}
for name, protect in {"no floor": {}, "floor 0.3": {"loop": 0.3}}.items():
    share, right = train(protect)
    columns |= {f"share, {name}": share, f"accuracy, {name}": right}
print_table(columns)
