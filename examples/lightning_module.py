"""Lightning: `MultiTaskLoss` as the loss of a `LightningModule`, with one process or several.

python examples/lightning_module.py
python examples/lightning_module.py --devices 2      # two processes that share every batch
"""

import argparse
import logging
import warnings

import lightning.pytorch as pl
import torch
from digits import TASKS, Network, accuracy, load, print_table
from torch import Tensor
from torch.utils.data import DataLoader

import excessmtl
from excessmtl.integrations.lightning import BalancerLog


class Digits(pl.LightningModule):
    """The network, its loss and its optimiser."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()
        # A submodule, so checkpoints hold its weights and noise estimates.
        self.criterion = excessmtl.MultiTaskLoss(dict.fromkeys(TASKS, "classification"), shared=self.network.encoder)

    def training_step(self, batch: tuple[Tensor, dict[str, Tensor]], batch_idx: int) -> Tensor:
        """The loss of a batch; Lightning calls backward."""
        x, labels = batch
        return self.criterion(self.network(x), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.network.parameters(), lr=1e-3)


def main() -> None:
    """Train, then test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
    options = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers")

    torch.manual_seed(0)
    (x, labels), test = load(options.quick)
    rows = [(x[i], {task: label[i] for task, label in labels.items()}) for i in range(len(x))]
    module = Digits()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=options.devices,
        strategy="ddp" if options.devices > 1 else "auto",
        max_epochs=1 if options.quick else 5,
        callbacks=[BalancerLog()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(rows, batch_size=64 // options.devices, shuffle=True))
    if trainer.is_global_zero:
        weights = dict(zip(TASKS, module.criterion.balancer.last_step.weights.tolist(), strict=True))
        print_table({"weight": weights, "accuracy": accuracy(module.network, *test)})


if __name__ == "__main__":
    main()
