"""The networks that are measured: a trunk, a head per task, one batch of random data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from excessmtl.lab.data.networks import MLP, LeNet, ResNet18, SegNet, dense_head

_WORDS = 30_522


class Problem(nn.Module):
    """A network with its batch. Whole numbers as targets are classes, bools are of two classes, others are regressed.

    `autocast`: computed in bf16.
    """

    def __init__(
        self, trunk: nn.Module, heads: list[nn.Module], inputs: Tensor, targets: list[Tensor], autocast: bool = False
    ) -> None:
        super().__init__()
        self.trunk, self.autocast = trunk, autocast
        self.heads = nn.ModuleDict({f"task{i}": head for i, head in enumerate(heads)})
        self.inputs, self.targets = inputs, dict(zip(self.heads, targets, strict=True))

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks."""
        return list(self.heads)

    def forward(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The shared representation, and the loss of each task."""
        z, outputs = self.outputs()
        with self._precision():
            kinds = self.kinds
            return z, {task: _LOSSES[kinds[task]](output, self.targets[task]) for task, output in outputs.items()}

    def outputs(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The shared representation, and the output of each head."""
        with self._precision():
            z = self.trunk(self.inputs)
            return z, {task: head(z) for task, head in self.heads.items()}

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.inputs.device.type, torch.bfloat16, enabled=self.autocast)

    @property
    def kinds(self) -> dict[str, str]:
        """Task -> the kind of its labels, as `MultiTaskLoss` takes it."""
        return {task: _kind(target) for task, target in self.targets.items()}


_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "regression": F.mse_loss,
    "binary": lambda output, target: F.binary_cross_entropy_with_logits(output, target.float()),
    "classification": F.cross_entropy,
}


def _kind(target: Tensor) -> str:
    if target.is_floating_point():
        return "regression"
    return "binary" if target.dtype == torch.bool else "classification"


@dataclass(frozen=True)
class Network:
    """How a problem is made."""

    name: str
    summary: str
    tasks: int
    batch: int
    build: Callable[..., Problem]
    """From the number of tasks, the batch size, and `arguments`."""
    arguments: tuple[Any, ...] = ()

    def problem(self, device: torch.device, seed: int = 0) -> Problem:
        """A fresh copy, the same for every caller."""
        torch.manual_seed(seed)
        with device:
            return self.build(self.tasks, self.batch, *self.arguments).to(device)


def _perceptron(tasks: int, batch: int, features: int, hidden: int, layers: int, binary: bool = False) -> Problem:
    heads: list[nn.Module] = [nn.Linear(hidden, 1) for _ in range(tasks)]
    targets = [torch.randn(batch, 1) for _ in range(tasks)]
    targets = [target > 0 for target in targets] if binary else targets
    return Problem(MLP(features, hidden, layers), heads, torch.randn(batch, features), targets)


def _classifier(tasks: int, batch: int, trunk: Callable[[], nn.Module], size: Sequence[int], classes: int) -> Problem:
    shared = trunk()
    heads: list[nn.Module] = [nn.Linear(int(shared.out_features), classes) for _ in range(tasks)]  # type: ignore[arg-type]
    targets = [torch.randint(classes, (batch,)) for _ in range(tasks)]
    return Problem(shared, heads, torch.randn(batch, *size), targets)


def _small_images() -> ResNet18:
    """ResNet-18 for images of 64 pixels: its stem does not make them smaller."""
    trunk = ResNet18()
    trunk.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    return trunk


class _Transformer(nn.Module):
    """Tokens (batch, length) -> features (batch, length, width). `checkpointed`: layers are computed twice."""

    def __init__(self, layers: int, width: int, length: int, checkpointed: bool = False) -> None:
        super().__init__()
        self.out_features, self.checkpointed = width, checkpointed
        self.words, self.positions = nn.Embedding(_WORDS, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 64, 4 * width, activation="gelu", batch_first=True)
            for _ in range(layers)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        z: Tensor = self.words(tokens) + self.positions.weight
        for layer in self.layers:
            z = checkpoint(layer, z, use_reentrant=False) if self.checkpointed else layer(z)
        return z

    def batch(self, size: int) -> Tensor:
        return torch.randint(_WORDS, (size, self.positions.num_embeddings))


class _FirstToken(nn.Module):
    """Features of a sequence -> those of its first token, which stands for all of it."""

    def forward(self, sequence: Tensor) -> Tensor:
        return sequence[:, 0]


def _language(tasks: int, batch: int, *size: int, tokens: bool = False, trunk_is: str = "") -> Problem:
    """Heads on the first token, or on every token with dropout. Parameters in fp32, unless the trunk is "all bf16"."""
    (layers, width, length), classes = size, 9 if tokens else 2
    trunk = _Transformer(layers, width, length, trunk_is == "checkpointed")
    inputs = trunk.batch(batch)
    first, last = (nn.Dropout(0.1), nn.Flatten(0, 1)) if tokens else (_FirstToken(), nn.Identity())
    heads: list[nn.Module] = [nn.Sequential(first, nn.Linear(width, classes), last) for _ in range(tasks)]
    targets = [torch.randint(classes, (inputs.numel() if tokens else batch,)) for _ in range(tasks)]
    shared: Any = torch.compile(trunk) if trunk_is == "compiled" else trunk
    problem = Problem(shared, heads, inputs, targets, autocast=trunk_is != "all bf16")
    return problem.bfloat16() if trunk_is == "all bf16" else problem


_on_tokens = partial(_language, tokens=True)
_checkpointed, _compiled = (partial(_language, trunk_is=how) for how in ("checkpointed", "compiled"))
_bf16, _bf16_on_tokens = (partial(how, trunk_is="all bf16") for how in (_language, _on_tokens))


def _small_conv(tasks: int, batch: int) -> Problem:
    trunk = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    heads: list[nn.Module] = [nn.Linear(32, 1) for _ in range(tasks)]
    return Problem(trunk, heads, torch.randn(batch, 3, 32, 32), [torch.randn(batch, 1) for _ in range(tasks)])


def _scenes(tasks: int, batch: int) -> Problem:
    size, outputs = (288, 384), (13, 1, 3)
    trunk = SegNet(levels=5)
    targets = [torch.randint(13, (batch, *size)), torch.randn(batch, 1, *size), torch.randn(batch, 3, *size)]
    heads: list[nn.Module] = [dense_head(trunk.out_features, count) for count in outputs]
    return Problem(trunk, heads[:tasks], torch.randn(batch, 3, *size), targets[:tasks])


def perceptron_of_size(parameters: int, tasks: int, batch: int) -> Network:
    """A three-layer perceptron with about so many shared parameters, to see how costs grow."""
    hidden = round(math.sqrt(parameters / 2))
    return Network("growth", f"MLP 64-{hidden}-{hidden}-{hidden}", tasks, batch, _perceptron, (64, hidden, 3))


_IMAGE = (3, 64, 64)
_BERT, _BILLION = (12, 768, 128), (24, 2048, 512)
NETWORKS = {
    network.name: network
    for network in (
        Network("mlp-7", "MLP 21-128-128-128", 7, 256, _perceptron, (21, 128, 3)),
        Network("binary-12", "MLP 64-128-128, 12 binary tasks", 12, 256, _perceptron, (64, 128, 2, True)),
        Network("lenet-2", "LeNet, 36 px", 2, 256, _classifier, (lambda: LeNet(36), (1, 36, 36), 10)),
        Network("resnet18-4", "ResNet-18, 64 px", 4, 128, _classifier, (ResNet18, _IMAGE, 65)),
        Network("resnet18-40", "ResNet-18, 64 px", 40, 64, _classifier, (ResNet18, _IMAGE, 2)),
        Network("resnet64-4", "ResNet-18, 64 px, full-size stem", 4, 128, _classifier, (_small_images, _IMAGE, 65)),
        Network("resnet64-40", "ResNet-18, 64 px, full-size stem", 40, 64, _classifier, (_small_images, _IMAGE, 2)),
        Network("segnet-3", "SegNet, 288 x 384 px", 3, 8, _scenes),
        Network("bert-3", "BERT-base, 128 tokens, bf16", 3, 64, _language, _BERT),
        Network("bert-3-tokens", "BERT-base, heads on every token", 3, 64, _on_tokens, _BERT),
        Network("bert-3-compiled", "BERT-base, trunk compiled", 3, 64, _compiled, _BERT),
        Network("bert-3-checkpointed", "BERT-base, layers checkpointed", 3, 64, _checkpointed, _BERT),
        Network("billion-3", "transformer, 512 tokens, bf16", 3, 8, _bf16, _BILLION),
        Network("billion-3-tokens", "transformer, heads on every token", 3, 8, _bf16_on_tokens, _BILLION),
        Network("mlp512-40", "MLP 64-512-512-512-512", 40, 256, _perceptron, (64, 512, 4)),
        Network("conv-5", "two convolutions, 32 px", 5, 64, _small_conv),
    )
}
_SMALL = ("mlp512-40", "conv-5")
USUAL = {
    "cpu": (*_SMALL, "mlp-7", "binary-12", "lenet-2"),
    "cuda": tuple(name for name in NETWORKS if name not in _SMALL),
}
"""What is measured unless the user says otherwise: what a device is bought for."""
