"""The small world without what differs between processes by design: batch norm, dropout."""

from dataclasses import replace

import small_world
from torch import nn


def load(seed: int, separate: bool = False):
    made = small_world.load(None, seed, kinds="mixed", separate=separate)
    return replace(
        made, build_trunk=lambda: nn.Sequential(nn.Linear(small_world.FEATURES, small_world.HIDDEN), nn.Tanh())
    )
