"""Engines that take one way and no other, to compare the ways with each other."""

from excessmtl.gradients.ways import WAYS, AnyGraph, Fastest

ENGINES = {
    "linear heads": Fastest,
    "separate heads": lambda: Fastest(ways=WAYS - {"linear heads"}),
    "reference": AnyGraph,
}
"""By the way they take, where the graph allows it."""
