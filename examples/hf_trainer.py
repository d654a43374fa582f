"""Hugging Face Trainer: a small BERT with random weights and two heads.

    python examples/hf_trainer.py
    torchrun --nproc-per-node 2 examples/hf_trainer.py      # two processes that share every batch

There is no text to download: a picture of a digit, 7 x 7 after pooling, is read as 49 tokens of 16 grey levels. Some
labels of the second task are random.
"""

import argparse
import os
import tempfile

import torch
from digits import CLASSES, accuracy, load, print_table, with_bad_labels
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from transformers import BertConfig, BertModel, Trainer, TrainingArguments
from transformers.utils import logging

import excessmtl

TASKS = ["odd", "loop"]


class TwoHeads(nn.Module):
    """Both heads read the first token."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=17,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=50,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.heads = nn.ModuleDict({task: nn.Linear(32, CLASSES[task]) for task in TASKS})
        # A part of the model, so checkpoints hold its weights and noise estimates.
        self.criterion = excessmtl.MultiTaskLoss(dict.fromkeys(TASKS, "classification"), shared=self.encoder)

    def forward(self, input_ids: Tensor, **labels: Tensor) -> dict[str, object]:
        """The answers by task; with labels, the loss too."""
        first = self.encoder(input_ids).last_hidden_state[:, 0]
        answers = {task: head(first) for task, head in self.heads.items()}
        if not labels:
            return answers
        # Detached: with several processes, what is returned beside the loss would take part in the backward pass.
        return {"loss": self.criterion(answers, labels)} | {task: answer.detach() for task, answer in answers.items()}


def tokens(pictures: Tensor) -> Tensor:
    """[n, 50]: a first token, then the picture."""
    levels = (avg_pool2d(pictures.view(-1, 1, 28, 28), 4).flatten(1) * 15).round().long() + 1
    return torch.cat([torch.zeros(len(levels), 1, dtype=torch.long), levels], 1)


def main() -> None:
    """Train, then test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one epoch on a few digits")
    quick = parser.parse_args().quick
    logging.set_verbosity_error()

    torch.manual_seed(0)
    (x, labels), (test_x, test_labels) = load(quick)
    labels = with_bad_labels(labels, "loop", 0.5)
    ids = tokens(x)
    rows = [{"input_ids": ids[i], **{task: labels[task][i] for task in TASKS}} for i in range(len(x))]
    model = TwoHeads()
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            num_train_epochs=1 if quick else 20,
            per_device_train_batch_size=64 // int(os.environ.get("WORLD_SIZE", "1")),
            learning_rate=2e-3,
            logging_steps=5 if quick else 200,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            label_names=TASKS,
        )
        trainer = Trainer(model, settings, train_dataset=rows)
        trainer.train()
    if not trainer.is_world_process_zero():
        return
    weights = dict(zip(TASKS, model.criterion.balancer.last_step.weights.tolist(), strict=True))
    right = accuracy(model, tokens(test_x), test_labels)
    print_table({"weight": weights, "accuracy": right})


if __name__ == "__main__":
    main()
