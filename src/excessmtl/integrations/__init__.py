"""Balancers inside of training frameworks. Each framework has a module of its own, which imports it: ask for that one.

`as_loss` needs no framework: it suits every trainer that takes a scalar and calls `.backward()` on it.
"""

from excessmtl.integrations.scalar import as_loss

__all__ = ["as_loss"]
