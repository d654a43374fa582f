"""A plain multi-layer perceptron, the trunk of the SARCOS experiments."""

from itertools import pairwise

from torch import nn


class MLP(nn.Sequential):
    """`layers` linear maps of width `hidden`, each followed by a ReLU; the paper's unless told otherwise."""

    def __init__(self, in_features: int, hidden: int = 128, layers: int = 3) -> None:
        if layers < 1:
            raise ValueError(f"layers is {layers}: a perceptron needs at least one")
        modules: list[nn.Module] = []
        for before, after in pairwise([in_features] + [hidden] * layers):
            modules += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*modules)
        self.out_features = hidden
