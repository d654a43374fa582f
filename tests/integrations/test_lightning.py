"""Lightning trains as a plain loop does, and logs every task."""

import logging

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from choices import each
from excessmtl.integrations.lightning import BalancedModule, BalancerLog
from integrations.integration_worlds import TASKS, Model, assert_same, balancer_of, by_hand, flat, loader, optimizer_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*tensorboard"),
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec"),
]


class Module(BalancedModule):
    def __init__(self, method="excess", manual=0):
        super().__init__()
        self.automatic_optimization = not manual
        self.manual, self.model = manual, Model()
        self.balancer = balancer_of(self.model, method)

    def training_step(self, batch, batch_idx):
        losses = self.model(**batch)["losses"]
        if not self.manual:
            return self.balanced_loss(losses)
        last = (batch_idx + 1) % self.manual == 0
        losses = {task: loss / self.manual for task, loss in losses.items()}
        assert self.balanced_backward(losses, accumulate=not last) is self.balancer.last_step
        if last:
            optimizer = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()
        return None

    def validation_step(self, batch, batch_idx):
        before = self.balancer.steps
        losses = self.model(**batch)["losses"]
        value = self.balanced_loss(losses)
        assert self.balancer.steps == before
        assert value.item() == pytest.approx(sum(losses.values()).item())  # of equal weights: those of training move

    def configure_optimizers(self):
        return optimizer_of(self.model)


def trainer(folder, **options):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    settings = {"accelerator": "cpu", "max_epochs": 1, "default_root_dir": folder, "num_sanity_val_steps": 0, **quiet}
    return pl.Trainer(**{**settings, **options})


@each("method", ["excess", "mgda"])
@pytest.mark.parametrize(("manual", "micro_batches"), [(True, 1), (True, 2), (False, 1), (False, 2), (False, 4)])
def test_it_trains_as_a_plain_loop(method, micro_batches, manual, tmp_path):
    module = Module(method, micro_batches if manual else 0)
    options = {} if manual else {"accumulate_grad_batches": micro_batches}
    trainer(tmp_path, **options).fit(module, loader(), loader(2))
    assert_same((flat(module.model), module.balancer.state_dict()), by_hand(method, micro_batches))


def test_logs_and_checkpoints(tmp_path):
    module, log = Module(), CSVLogger(tmp_path)
    trained = trainer(tmp_path, logger=log, callbacks=[BalancerLog()], log_every_n_steps=2, precision="bf16-mixed")
    trained.fit(module, loader(), loader(2))
    header, *lines = (tmp_path / "lightning_logs/version_0/metrics.csv").read_text().splitlines()
    assert {f"weights/{task}" for task in TASKS} <= set(header.split(","))
    assert len(lines) == 3
    trained.save_checkpoint(tmp_path / "end.ckpt")
    again = Module.load_from_checkpoint(tmp_path / "end.ckpt", weights_only=True)
    assert again.balancer.steps == 6
    assert torch.equal(again.balancer.weights, module.balancer.weights)
