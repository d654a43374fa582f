"""Hugging Face's Trainer and Accelerate train as a plain loop does; checkpoints hold the balancer."""

import json

import pytest
import torch
from accelerate import Accelerator
from transformers import TrainerCallback, TrainingArguments

from choices import each
from excessmtl.integrations import accelerate
from excessmtl.integrations.huggingface import FILE, BalancedTrainer
from integrations import integration_worlds as world
from integrations.integration_worlds import BATCH, Model, assert_same, balancer_of, by_hand, flat, loader, optimizer_of


def trainer(folder, micro_batches=1, kind=BalancedTrainer, model=None, **options):
    """Batches come in order, so that a plain loop can be compared."""
    model = model or Model()
    settings = {"per_device_train_batch_size": BATCH, "num_train_epochs": 1, "max_grad_norm": 0, "report_to": "none"}
    settings |= {"lr_scheduler_type": "constant", "disable_tqdm": True, "use_cpu": True, "label_names": ["y"]}
    settings |= {"gradient_accumulation_steps": micro_batches, "dataloader_pin_memory": False, **options}

    class InOrder(kind):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    return InOrder(
        model,
        TrainingArguments(str(folder), **settings),
        train_dataset=world.dataset(),
        eval_dataset=world.dataset(2),
        optimizers=(optimizer_of(model), None),
        **({"balancer": balancer_of(model)} if kind is BalancedTrainer else {}),
    )


@each("micro_batches", [1, 2])
def test_the_trainer_trains_as_a_plain_loop(tmp_path, micro_batches):
    made = trainer(tmp_path, micro_batches, save_strategy="no")
    made.train()
    assert_same((flat(made.model), made.balancer.state_dict()), by_hand(micro_batches=micro_batches))
    assert made.evaluate()["eval_loss"] > 0
    assert made.predict(world.dataset(2)).predictions.shape == (2 * BATCH, len(world.TASKS))
    assert made.balancer.steps == world.STEPS // micro_batches


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


def losses_on(made, rows):
    """Task -> mean loss on some rows."""
    batch = {name: torch.stack([row[name] for row in rows]) for name in ("x", "y")}
    with torch.no_grad():
        return made.model(**batch)["losses"]


@pytest.mark.parametrize("size", [4, 8, 16])
def test_evaluation_has_equal_weights_and_the_weighted_loss_beside_it(tmp_path, size):
    """With a last batch that is not full too."""
    made = trainer(tmp_path, save_strategy="no", per_device_eval_batch_size=size)
    made.train()
    weights = dict(zip(world.TASKS, made.balancer.last_step.weights.tolist(), strict=True))
    assert weights["a"] != pytest.approx(weights["b"], rel=1e-3)
    rows = world.dataset(3)[: 2 * BATCH + 4]
    found = made.evaluate(rows)
    losses = losses_on(made, rows)
    assert found["eval_loss"] == pytest.approx(float(losses["a"] + losses["b"]), rel=1e-5)
    weighted = sum(weights[task] * float(losses[task]) for task in world.TASKS)
    assert found["eval_weighted_loss"] == pytest.approx(weighted, rel=1e-5)
    assert "test_weighted_loss" in made.predict(rows).metrics


def test_the_best_model_is_the_one_with_the_lowest_sum_of_losses(tmp_path):
    """Weights that move to a task do not make a checkpoint look better or worse."""
    often = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    made = trainer(tmp_path, load_best_model_at_end=True, **often)
    sums = {}

    class Weigh(TrainerCallback):
        """Weights that grow while the losses fall."""

        def on_step_end(self, args, state, control, **_):
            made.balancer.scale = 0.5 * state.global_step

        def on_evaluate(self, args, state, control, **_):
            losses = losses_on(made, world.dataset(2))
            sums[state.global_step] = float(losses["a"] + losses["b"])

    made.add_callback(Weigh())
    made.train()
    best = min(sums, key=sums.get)
    assert made.state.best_metric == pytest.approx(sums[best], rel=1e-5)
    assert made.state.best_model_checkpoint.endswith(f"checkpoint-{best}")


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
