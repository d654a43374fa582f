"""Helpers for tests with many cases."""

import pytest
import torch


def _wraps_selections():
    column = torch.zeros(2, 2, requires_grad=True).clone()[:, 0]
    return type(column.grad_fn.next_functions[0][0]).__name__ == "SliceBackward0"


finds_selections = pytest.mark.skipif(
    _wraps_selections(), reason="this torch, 2.8 or older, makes two nodes of z[:, i]: a slower way, the same numbers"
)


def each(name, values):
    """Parametrise over `values`, by their names."""
    return pytest.mark.parametrize(name, values, ids=str)
