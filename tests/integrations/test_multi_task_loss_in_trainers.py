"""`MultiTaskLoss` as the loss of every trainer: parameters and state are those of a plain loop."""

import lightning.pytorch as pl
import pytest
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric
from safetensors.torch import load_file
from torch import nn
from transformers import Trainer

import excessmtl
from excessmtl.integrations.fabric import backward
from integrations import integration_worlds as world
from integrations.test_huggingface import trainer as huggingface_trainer
from integrations.test_lightning import trainer
from models import MultiTask

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec"),
]
KINDS = {"a": "regression", "b": "binary"}


class Model(world.Model):
    """With a loss of its own, for trainers that save the model alone."""

    def __init__(self, **options):
        super().__init__()
        self.criterion = excessmtl.MultiTaskLoss(KINDS, self.trunk, **options)

    def forward(self, x, y=None):
        outputs = MultiTask.forward(self, x)
        return outputs if y is None else {"loss": self.criterion(outputs, targets(y)), **outputs}


def targets(y):
    return {"a": y[:, 0], "b": (y[:, 1] > 0).float()}


def by_hand(**options):
    model = Model(**options)
    optimizer = world.optimizer_of(model)
    for batch in world.loader():
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    return model


def with_lightning(folder):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, batch_idx):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return world.optimizer_of(self.model)

    module = Module()
    trainer(folder, limit_val_batches=0).fit(module, world.loader())
    return module.model


def with_accelerate(folder):
    accelerator, model = Accelerator(cpu=True), Model()
    wrapped, optimizer, batches = accelerator.prepare(model, world.optimizer_of(model), world.loader())
    accelerator.register_for_checkpointing(model.criterion)
    for batch in batches:
        optimizer.zero_grad()
        accelerator.backward(wrapped(**batch)["loss"])
        optimizer.step()
    accelerator.save_state(str(folder / "state"))
    model.criterion.balancer.memory.weights.zero_()
    accelerator.load_state(str(folder / "state"))
    return model


def with_hugging_face(folder):
    model = Model()
    made = huggingface_trainer(folder, kind=Trainer, model=model)
    made.train()
    before = model.criterion.balancer.steps
    assert made.evaluate()["eval_loss"] > 0
    assert model.criterion.balancer.steps == before
    (saved,) = folder.glob("checkpoint-*/model.safetensors")
    loaded = Model()
    loaded.load_state_dict(load_file(saved))
    return loaded


@pytest.mark.parametrize("train", [with_lightning, with_accelerate, with_hugging_face])
def test_it_trains_as_a_plain_loop(train, tmp_path):
    found, expected = train(tmp_path), by_hand()
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, msg=name)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_fabric(precision):
    fabric, model = Fabric(accelerator="cpu", precision=precision), Model(heads="weighted")
    wrapped, optimizer = fabric.setup(model, world.optimizer_of(model))
    for batch in fabric.setup_dataloaders(world.loader()):
        losses, mask = model.criterion.by_task(wrapped(batch["x"]), targets(batch["y"]))
        optimizer.zero_grad()
        backward(fabric, model.criterion.balancer, losses, mask=mask)
        optimizer.step()
    found, expected = (nn.utils.parameters_to_vector(one.parameters()) for one in (model, by_hand(heads="weighted")))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if precision == "32-true" else 1e-2)
