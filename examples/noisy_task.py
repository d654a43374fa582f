"""Half of one task's labels are random. Its weight shows it, and the other tasks do not suffer.

python examples/noisy_task.py
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, batches, load, losses_of, print_table, with_bad_labels

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="two epochs on a few digits")
quick = parser.parse_args().quick
NOISY = "loop"


def train(method: str) -> tuple[dict[str, float], dict[str, float]]:
    """The mean weights of the last epoch, and accuracies on good labels."""
    torch.manual_seed(0)
    (x, labels), test = load(quick)
    labels = with_bad_labels(labels, NOISY, 0.8)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    balancer = excessmtl.create(method, tasks=TASKS, shared=network.encoder)
    for _ in range(2 if quick else 10):
        weights = []
        for pictures, their_labels in batches(x, labels):
            optimizer.zero_grad()
            step = balancer.backward(losses_of(network(pictures), their_labels))
            optimizer.step()
            weights.append(step.weights)
    return dict(zip(TASKS, torch.stack(weights).mean(0).tolist(), strict=True)), accuracy(network, *test)


columns = {}
for method in ("uniform", "excess"):
    weights, right = train(method)
    columns |= {f"weight, {method}": weights, f"accuracy, {method}": right}
print_table(columns)
print(f"least weight: {min(weights, key=weights.__getitem__)} (bad labels: {NOISY})")
