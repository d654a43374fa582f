"""Accelerate: one process or several, here with two micro-batches per step.

python examples/accelerate_loop.py
torchrun --nproc-per-node 2 examples/accelerate_loop.py      # two processes that share every batch
"""

import argparse

import torch
from accelerate import Accelerator
from digits import TASKS, Network, accuracy, load, losses_of, print_table
from torch.utils.data import DataLoader

import excessmtl
from excessmtl.integrations.accelerate import backward


def main() -> None:
    """Train, then test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
    quick = parser.parse_args().quick

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    (x, labels), test = load(quick)
    rows = [(x[i], {task: label[i] for task, label in labels.items()}) for i in range(len(x))]
    network = Network()
    balancer = excessmtl.create("excess", tasks=TASKS, shared=network.encoder)
    loader = DataLoader(rows, batch_size=32 // accelerator.num_processes, shuffle=True)
    model, optimizer, batches = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=1e-3), loader)
    accelerator.register_for_checkpointing(balancer)  # accelerator.save_state() holds it from now on

    for _ in range(1 if quick else 5):
        for pictures, their_labels in batches:
            with accelerator.accumulate(model):
                # In place of accelerator.backward(sum(losses.values())).
                step = backward(accelerator, balancer, losses_of(model(pictures), their_labels))
                optimizer.step()
                optimizer.zero_grad()

    if accelerator.is_main_process:
        weights = dict(zip(TASKS, step.weights.tolist(), strict=True))
        print_table({"weight": weights, "accuracy": accuracy(network, *test)})
    accelerator.end_training()


if __name__ == "__main__":
    main()
