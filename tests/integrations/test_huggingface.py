"""Hugging Face's Trainer and Accelerate train as a plain loop does; checkpoints hold the balancer."""

import json

import pytest
import torch
from accelerate import Accelerator
from transformers import TrainingArguments

from cases import each
from excessmtl.integrations import accelerate
from excessmtl.integrations.huggingface import FILE, BalancedTrainer
from integrations.integration_worlds import (
    BATCH,
    STEPS,
    TASKS,
    Model,
    assert_same,
    balancer_of,
    by_hand,
    dataset,
    flat,
    loader,
    optimizer_of,
)


class InOrder(BalancedTrainer):
    """Batches in order, so that a plain loop can be compared."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def trainer(folder, micro_batches=1, **options):
    model = Model()
    settings = {"per_device_train_batch_size": BATCH, "num_train_epochs": 1, "max_grad_norm": 0, "report_to": "none"}
    settings |= {"lr_scheduler_type": "constant", "disable_tqdm": True, "use_cpu": True, "label_names": ["y"]}
    settings |= {"gradient_accumulation_steps": micro_batches, "dataloader_pin_memory": False, **options}
    return InOrder(
        model,
        TrainingArguments(str(folder), **settings),
        balancer=balancer_of(model),
        train_dataset=dataset(),
        eval_dataset=dataset(2),
        optimizers=(optimizer_of(model), None),
    )


@each("micro_batches", [1, 2])
def test_the_trainer_trains_as_a_plain_loop(tmp_path, micro_batches):
    made = trainer(tmp_path, micro_batches, save_strategy="no")
    made.train()
    assert_same((flat(made.model), made.balancer.state_dict()), by_hand(micro_batches=micro_batches))
    assert made.evaluate()["eval_loss"] > 0
    assert made.predict(dataset(2)).predictions.shape == (2 * BATCH, len(TASKS))
    assert made.balancer.steps == STEPS // micro_batches


def test_checkpoints_and_logs(tmp_path):
    whole = trainer(tmp_path, save_steps=2, logging_steps=2)
    whole.train()
    logged = [entry for entry in whole.state.log_history if "weights/a" in entry]
    assert len(logged) == 3
    assert json.loads(json.dumps(logged)) == logged
    assert all((tmp_path / f"checkpoint-{step}" / FILE).exists() for step in (2, 4, 6))
    resumed = trainer(tmp_path, save_strategy="no")
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_same((flat(resumed.model), resumed.balancer.state_dict()), (flat(whole.model), whole.balancer.state_dict()))
    (tmp_path / "checkpoint-4" / FILE).unlink()
    with pytest.warns(UserWarning, match="starts anew"):
        trainer(tmp_path, save_strategy="no").train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_a_model_without_losses_is_told_what_to_return(tmp_path):
    made = trainer(tmp_path)
    with pytest.raises(ValueError, match='"losses"'):
        made.compute_loss(lambda **_: {"loss": torch.ones(())}, {})


@each("micro_batches", [1, 2])
def test_accelerate_trains_as_a_plain_loop(tmp_path, micro_batches):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=micro_batches)
    model = Model()
    balancer = balancer_of(model)
    wrapped, optimizer, batches = accelerator.prepare(model, optimizer_of(model), loader())
    accelerator.register_for_checkpointing(balancer)
    for batch in batches:
        with accelerator.accumulate(wrapped):
            step = accelerate.backward(accelerator, balancer, wrapped(**batch)["losses"])
            optimizer.step()
            optimizer.zero_grad()
    assert step is balancer.last_step
    expected = by_hand(micro_batches=micro_batches)
    assert_same((flat(model), balancer.state_dict()), expected)
    accelerator.save_state(str(tmp_path / "saved"))
    wrapped(**next(iter(loader())))
    balancer.backward(wrapped(**next(iter(loader())))["losses"])
    accelerator.load_state(str(tmp_path / "saved"))
    assert_same((flat(model), balancer.state_dict()), expected)
