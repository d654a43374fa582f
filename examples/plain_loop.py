"""A plain training loop with a balancer: two lines are new.

python examples/plain_loop.py
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, batches, load, losses_of, print_table

import excessmtl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
quick = parser.parse_args().quick

torch.manual_seed(0)
train, test = load(quick)
network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
balancer = excessmtl.create("excess", tasks=TASKS, shared=network.encoder)  # new

for epoch in range(1 if quick else 5):
    for x, labels in batches(*train):
        losses = losses_of(network(x), labels)
        optimizer.zero_grad()
        step = balancer.backward(losses)  # in place of sum(losses.values()).backward()
        optimizer.step()
    print(f"epoch {epoch + 1}\n{step}\n")

print_table({"accuracy": accuracy(network, *test)})
