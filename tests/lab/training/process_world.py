"""The small world without what differs between processes by design: batch norm, dropout."""

from dataclasses import replace

import small_world
import torch
from torch import nn


def load(seed: int, separate: bool = False, missing: bool = False):
    made = small_world.load(None, seed, kinds="mixed", separate=separate)
    if missing:  # few labels: some shares of a batch have none
        made.train.targets["b"][torch.arange(len(made.train.targets["b"])) % 12 > 0] = torch.nan
    return replace(
        made, build_trunk=lambda: nn.Sequential(nn.Linear(small_world.FEATURES, small_world.HIDDEN), nn.Tanh())
    )
