"""Balancers inside of training frameworks. Each framework has a module of its own, which imports it: ask for that one.

Two need no framework. `as_loss` suits every trainer that takes a scalar and calls `.backward()` on it, `MatrixLoss`
every trainer that takes a loss of predictions and labels, both [batch, tasks].
"""

from excessmtl.integrations.matrix import MatrixLoss
from excessmtl.integrations.scalar import as_loss

__all__ = ["MatrixLoss", "as_loss"]
