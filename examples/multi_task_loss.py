"""One object for the whole job: robust losses, missing labels, weights of the tasks, and which task is noisy.

python examples/multi_task_loss.py
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, batches, load, print_table, with_bad_labels

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="few epochs")
quick = parser.parse_args().quick

torch.manual_seed(0)
(x, labels), test = load()
labels = with_bad_labels(labels, "digit", 0.6)
labels["odd"][torch.rand(len(x)) < 0.5] = -100  # half of them are missing
kept = len(x) // 5  # not trained on: labels as good and as bad as the others
held_out = {task: label[:kept] for task, label in labels.items()}

network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
criterion = excessmtl.MultiTaskLoss(dict.fromkeys(TASKS, "classification"), shared=network.encoder)

for epoch in range(3 if quick else 10):
    for pictures, targets in batches(x[kept:], {task: label[kept:] for task, label in labels.items()}):
        optimizer.zero_grad()
        step = criterion.backward(network(pictures), targets)
        optimizer.step()
    criterion.eval()
    with torch.no_grad():
        predictions = network(x[:kept])
        print(f"epoch {epoch + 1}: held-out loss {criterion(predictions, held_out):.3f}")
    criterion.train()

print(criterion.diagnose(predictions, held_out), end="\n\n")
print_table({"weight": dict(zip(TASKS, step.weights.tolist(), strict=True)), "accuracy": accuracy(network, *test)})
