"""Fabric: a loop of your own on any device and precision; here bfloat16 mixed precision.

python examples/fabric_loop.py
python examples/fabric_loop.py --devices 2      # two processes that share every batch
"""

import argparse

import torch
from digits import TASKS, Network, accuracy, load, print_table
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

import excessmtl
from excessmtl.integrations.fabric import backward


def main() -> None:
    """Train, then test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
    options = parser.parse_args()

    fabric = Fabric(accelerator="cpu", devices=options.devices, precision=options.precision)
    fabric.launch()
    torch.manual_seed(0)
    (x, labels), test = load(options.quick)
    rows = [(x[i], {task: label[i] for task, label in labels.items()}) for i in range(len(x))]
    network = Network()
    criterion = excessmtl.MultiTaskLoss(dict.fromkeys(TASKS, "classification"), shared=network.encoder)
    model, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=1e-3))
    loader = fabric.setup_dataloaders(DataLoader(rows, batch_size=64 // options.devices, shuffle=True))

    for _ in range(1 if options.quick else 5):
        for pictures, their_labels in loader:
            losses, mask = criterion.by_task(model(pictures), their_labels)
            optimizer.zero_grad()
            step = backward(fabric, criterion.balancer, losses, mask=mask)  # in place of fabric.backward(loss)
            optimizer.step()

    if fabric.is_global_zero:
        weights = dict(zip(TASKS, step.weights.tolist(), strict=True))
        print_table({"weight": weights, "accuracy": accuracy(network, *test)})


if __name__ == "__main__":
    main()
