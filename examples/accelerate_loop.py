"""Accelerate: one process or several.

python examples/accelerate_loop.py
torchrun --nproc-per-node 2 examples/accelerate_loop.py      # two processes that share every batch
"""

import argparse

import torch
from accelerate import Accelerator
from digits import TASKS, Network, accuracy, load, print_table
from torch.utils.data import DataLoader

import excessmtl


def main() -> None:
    """Train, then test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
    quick = parser.parse_args().quick

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    (x, labels), test = load(quick)
    rows = [(x[i], {task: label[i] for task, label in labels.items()}) for i in range(len(x))]
    network = Network()
    criterion = excessmtl.MultiTaskLoss(dict.fromkeys(TASKS, "classification"), shared=network.encoder)
    loader = DataLoader(rows, batch_size=64 // accelerator.num_processes, shuffle=True)
    model, optimizer, batches = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=1e-3), loader)
    accelerator.register_for_checkpointing(criterion)  # accelerator.save_state() holds it from now on

    for _ in range(1 if quick else 5):
        for pictures, their_labels in batches:
            optimizer.zero_grad()
            accelerator.backward(criterion(model(pictures), their_labels))
            optimizer.step()

    if accelerator.is_main_process:
        weights = dict(zip(TASKS, criterion.balancer.last_step.weights.tolist(), strict=True))
        print_table({"weight": weights, "accuracy": accuracy(network, *test)})
    accelerator.end_training()


if __name__ == "__main__":
    main()
