"""A plain multi-layer perceptron, the trunk of the SARCOS experiments."""

from itertools import pairwise

from torch import nn


class MLP(nn.Sequential):
    """`layers` linear maps of width `hidden`, each followed by a ReLU; `out_features` is the width."""

    def __init__(self, in_features: int, hidden: int, layers: int) -> None:
        if layers < 1:
            raise ValueError(f"layers is {layers}: a perceptron needs at least one")
        widths = [in_features] + [hidden] * layers
        modules: list[nn.Module] = []
        for before, after in pairwise(widths):
            modules += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*modules)
        self.out_features = hidden


def mlp(in_features: int, hidden: int = 128, layers: int = 3) -> MLP:
    """The paper's perceptron unless told otherwise: three layers of 128 units."""
    return MLP(in_features, hidden, layers)
