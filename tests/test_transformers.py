"""Trunks as Hugging Face makes them: outputs that are dicts and dataclasses, padding, adapters, checkpoints."""

from collections import OrderedDict
from dataclasses import dataclass, fields

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from choices import PAPER, ROBUST, UNIFORM, each
from models import DEVICE
from steps import gradients

TASKS = ["a", "b", "tokens"]
WORDS, WIDTH, LENGTH, SIZE = 20, 16, 6, 5
IGNORED = -100


class ModelOutput(OrderedDict):
    """A dictionary and a dataclass in one, as `transformers.utils.ModelOutput` is."""

    def __post_init__(self):
        for part in fields(self):
            if (value := getattr(self, part.name)) is not None:
                self[part.name] = value


@dataclass
class Output(ModelOutput):
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    attentions: tuple[Tensor, ...] | None = None


class Encoder(nn.Module):
    """Embedding, layers that mix tokens by attention, and a pooled first token."""

    def __init__(self, layers=2, checkpointing=None):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.pooler, self.checkpointing = nn.Linear(WIDTH, WIDTH), checkpointing

    def forward(self, tokens, padding=None):
        z = self.words(tokens)
        for layer in self.layers:
            if self.checkpointing is None:
                z = layer(z, src_key_padding_mask=padding)
            else:
                z = checkpoint(layer, z, None, padding, use_reentrant=self.checkpointing)
        return Output(last_hidden_state=z, pooler_output=self.pooler(z[:, 0]).tanh())


class Model(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.encoder = Encoder(**options)
        self.heads = nn.ModuleDict({task: nn.Linear(WIDTH, 3) for task in TASKS})

    def losses(self, tokens, labels, padding=None, take="pooler_output"):
        output = self.encoder(tokens, padding)
        pooled = output.pooler_output if take == "pooler_output" else output.last_hidden_state[:, 0]
        found = {task: F.cross_entropy(self.heads[task](pooled), labels[task]) for task in ("a", "b")}
        if "tokens" in labels:
            logits = self.heads["tokens"](output["last_hidden_state"])
            found["tokens"] = F.cross_entropy(logits.flatten(0, 1), labels["tokens"].flatten(), ignore_index=IGNORED)
        return found


def model_of(**options):
    torch.manual_seed(1)
    return Model(**options).to(DEVICE)


def batch(seed, tokens=True):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape, most: torch.randint(most, shape, generator=generator).to(DEVICE)  # noqa: E731
    labels = {"a": draw(SIZE, most=3), "b": draw(SIZE, most=3)}
    inputs = draw(SIZE, LENGTH, most=WORDS)
    if tokens:
        labels["tokens"] = draw(SIZE, LENGTH, most=3)
    return inputs, labels


def padded(inputs, labels, more=4):
    """The same batch with padding at the end of every sequence, which carries no label."""
    inputs = F.pad(inputs, (0, more), value=0)
    labels = {**labels, "tokens": F.pad(labels["tokens"], (0, more), value=IGNORED)}
    return inputs, labels, torch.arange(LENGTH + more, device=DEVICE).expand(SIZE, -1) >= LENGTH


def steps(method, model, batches, **arguments):
    balancer = method.create(model.encoder, tasks=[task for task in TASKS if task in batches[0][1]])
    found = []
    for inputs, labels, *padding in batches:
        model.zero_grad()
        step = balancer.backward(model.losses(inputs, labels, *padding, **arguments))
        found.append([step.weights, step.excess_risks.nan_to_num(-1), gradients(model)])
    return found, balancer


@each("method", [ROBUST, UNIFORM, PAPER])
def test_padding_is_no_sample(method):
    """Longer sequences with nothing in the rest: the same weights, excess risks and gradients."""
    batches = [batch(seed) for seed in range(4)]
    plain, _ = steps(method, model_of(), batches)
    longer, _ = steps(method, model_of(), [padded(*one) for one in batches])
    torch.testing.assert_close(longer, plain, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("take", ["pooler_output", "first token"])
@pytest.mark.parametrize("reentrant", [False, True])
@each("method", [ROBUST, UNIFORM])
def test_checkpointed_layers_change_nothing(method, reentrant, take):
    batches = [batch(seed, tokens=False) for seed in range(3)]
    plain, _ = steps(method, model_of(), batches, take=take)
    found, _ = steps(method, model_of(checkpointing=reentrant), batches, take=take)
    torch.testing.assert_close(found, plain)
