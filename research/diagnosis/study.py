"""What is trained: the worlds, and the cells of each. Constants were chosen at seeds 10 and 11."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from research.diagnosis.cells import Cell, World

ANY = ("symmetric", "pair", "instance")
FEW = (0.0, 0.2, 0.4, 0.8)
REPORTED = (
    World("multimnist-8", "multimnist", 8, ANY, title="MultiMNIST, 4,000 bundled pairs"),
    World("digit-domains", "digit-domains", 10, ANY, FEW, title="digit domains, 900 digits each"),
    World("multimnist-60k", "multimnist", 2, ANY, FEW, needs="mnist", title="MultiMNIST, 60,000 pairs of MNIST"),
    World("pacs", "office-home", 10, ANY, FEW, needs="pacs", title="PACS, 9,991 pictures"),
    World("sarcos", "sarcos", 40, needs="sarcos", levels=(0.0, 0.2, 0.4, 0.8, 1.0), title="SARCOS, 3,204 rows"),
    World("simulated-arm", "simulated-arm", 20, levels=(0.0, 0.2, 0.6, 1.0), title="simulated arm, 6,000 rows"),
)
HARD = (
    World("few-digits", "multimnist", 12, levels=(0.0,), options={"pairs": 300}, title="MultiMNIST, 300 pairs"),
    World("one-epoch", "multimnist", 1, levels=(0.0,), title="MultiMNIST after one epoch"),
    World("teacher-narrow", "teacher-narrow", levels=(0.0,), title="a trunk of 6 units for four regressions"),
    World("teacher-hard", "teacher-hard", levels=(0.0,), title="two of five regressions oscillate"),
    World("teacher-memorise", "teacher-memorise", levels=(0.0,), title="400 memorised samples, three tasks"),
    World("teacher-separate", "teacher-separate", levels=(0.0,), title="700 samples each, four tasks"),
)
"""Clean labels on tasks that are hard: too few samples, too few steps, too small a network, targets too fine."""
SEEDS = 5
_NOT_SYMMETRIC = (0.2, 0.4)
"""Beyond one half the wrong class is the more likely one, and no one could tell."""


def cells(worlds: Sequence[World], seeds: Sequence[int], data: Mapping[str, Path | None]) -> Iterator[Cell]:
    """Every world at every seed, kind and level; worlds that need data only where `data` says where it is."""
    for seed in seeds:
        for world in worlds:
            place = data.get(world.needs)
            if world.needs and place is None:
                continue
            made = replace(world, data=str(place)) if world.needs else world
            for kind in world.kinds:
                levels = world.levels if kind == "symmetric" else _NOT_SYMMETRIC
                yield from (Cell(made, kind, level, seed) for level in levels)
