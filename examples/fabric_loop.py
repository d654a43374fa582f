"""Fabric: a loop of your own on any device and precision; here bfloat16 mixed precision.

python examples/fabric_loop.py
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, batches, load, losses_of, print_table
from lightning.fabric import Fabric

import excessmtl
from excessmtl.integrations.fabric import backward

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--precision", default="bf16-mixed")
parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
options = parser.parse_args()

fabric = Fabric(accelerator="cpu", precision=options.precision)
torch.manual_seed(0)
train, test = load(options.quick)
network = Network()
balancer = excessmtl.create("excess", tasks=TASKS, shared=network.encoder)
model, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=1e-3))

for _ in range(1 if options.quick else 5):
    for x, labels in batches(*train):
        losses = losses_of(model(x), labels)
        optimizer.zero_grad()
        step = backward(fabric, balancer, losses)  # in place of fabric.backward(sum(losses.values()))
        optimizer.step()

print_table({"weight": dict(zip(TASKS, step.weights.tolist(), strict=True)), "accuracy": accuracy(network, *test)})
