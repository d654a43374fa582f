"""Four fifths of one task's labels are random: a report finds it; equal weights and the balancer side by side.

python examples/noisy_task.py
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, batches, load, losses_of, print_table, with_bad_labels

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="few epochs")
quick = parser.parse_args().quick
NOISY = "loop"


torch.manual_seed(0)
(x, labels), test = load()
labels = with_bad_labels(labels, NOISY, 0.8)
kept = len(x) // 5  # not trained on: labels as good and as bad as the others
held_out = x[:kept], {task: label[:kept] for task, label in labels.items()}
x, labels = x[kept:], {task: label[kept:] for task, label in labels.items()}


def train(method: str) -> tuple[Network, dict[str, float]]:
    """The network, and the mean weights of the last epoch."""
    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    balancer = excessmtl.create(method, tasks=TASKS, shared=network.encoder)
    for _ in range(3 if quick else 10):
        weights = []
        for pictures, their_labels in batches(x, labels):
            optimizer.zero_grad()
            step = balancer.backward(losses_of(network(pictures), their_labels))
            optimizer.step()
            weights.append(step.weights)
    return network, dict(zip(TASKS, torch.stack(weights).mean(0).tolist(), strict=True))


columns = {}
for method in ("uniform", "excess"):
    network, weights = train(method)
    columns |= {f"weight, {method}": weights, f"accuracy, {method}": accuracy(network, *test)}

with torch.no_grad():
    predictions = network(held_out[0])
print(excessmtl.diagnose(predictions, held_out[1]), end="\n\n")
print_table(columns)
