"""Engines that take one way and no other, to compare the ways with each other."""

from excessmtl.engine.reference import ReferenceEngine
from excessmtl.fast.engine import WAYS, FastEngine

ENGINES = {
    "linear heads": FastEngine,
    "separate heads": lambda: FastEngine(ways=WAYS - {"linear heads"}),
    "reference": ReferenceEngine,
}
"""By the way they take, where the graph allows it."""
