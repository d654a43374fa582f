"""Task heads: what turns the shared features into one task's output."""

from torch import nn


def linear_head(in_features: int, outputs: int) -> nn.Linear:
    """One linear map, for tasks with one target per example."""
    return nn.Linear(in_features, outputs)


def dense_head(in_features: int, outputs: int) -> nn.Sequential:
    """Two convolutions (3x3, then 1x1) for tasks with a target at every pixel.

    There is no nonlinearity between them, as in the networks the paper compares on. Normals leave this head
    with any length; the loss and the metrics normalise them.
    """
    return nn.Sequential(
        nn.Conv2d(in_features, in_features, 3, padding=1),
        nn.Conv2d(in_features, outputs, 1),
    )
