"""Engines that take one way and no other, to compare the ways with each other."""

from excessmtl.engine.reference import ReferenceEngine
from excessmtl.fast.engine import WAYS, FastEngine
from excessmtl.fast.thresholds import Thresholds

ENGINES = {
    "linear heads": FastEngine,
    "separate heads": lambda: FastEngine(ways=WAYS - {"linear heads"}),
    "large maps": lambda: FastEngine(ways=WAYS - {"linear heads"}, thresholds=Thresholds(large_map=1)),
    "reference": ReferenceEngine,
}
"""By the way they take, where the graph allows it."""


def all_maps_are_large(**options):
    return FastEngine(thresholds=Thresholds(large_map=1), **options)
