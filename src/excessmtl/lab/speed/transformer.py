"""A trunk of the size of BERT-base, built from PyTorch's own layers."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

_WORDS = 30_522


class Transformer(nn.Module):
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
        """The features of every token."""
        z: Tensor = self.words(tokens) + self.positions.weight
        for layer in self.layers:
            z = checkpoint(layer, z, use_reentrant=False) if self.checkpointed else layer(z)
        return z

    def batch(self, size: int) -> Tensor:
        """Random tokens."""
        return torch.randint(_WORDS, (size, self.positions.num_embeddings))


class FirstToken(nn.Module):
    """Features of a sequence -> those of its first token, which stands for all of it."""

    def forward(self, sequence: Tensor) -> Tensor:
        """(batch, length, width) -> (batch, width)."""
        return sequence[:, 0]
