"""What each fast way of computing gradients buys: a step without it, over a step with all of them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from excessmtl.lab.speed.measure import measure
from excessmtl.lab.speed.networks import NETWORKS, USUAL
from excessmtl.lab.speed.variants import Ours, Variant

ALL = "all ways"
_PAPER = {"estimator": "paper"}
STEPS: Mapping[str, Mapping[str, Ours]] = {
    "excess": {
        ALL: Ours("excess"),
        "without linear heads": Ours("excess", without="linear heads"),
        "without separate heads": Ours("excess", without="separate heads"),
        "without CUDA graphs": Ours("excess", {"record": False}),
        "one backward pass per task": Ours("excess", {"engine": "reference"}),
    },
    "excess, paper": {
        ALL: Ours("excess", _PAPER),
        "one task at a time": Ours("excess", {**_PAPER, "tasks_at_once": 1}),
        "one backward pass per task": Ours("excess", {**_PAPER, "engine": "reference"}),
    },
    "uniform, no representation": {
        ALL: Ours("uniform", without_module=True),
        "without losses only": Ours("uniform", without="losses only", without_module=True),
    },
}
_NETWORKS = {
    "cpu": USUAL["cpu"],
    "cuda": ("mlp-7", "lenet-2", "resnet18-4", "resnet18-40", "segnet-3", "bert-3-tokens"),
}


def ablation(device: torch.device, seconds: float, say: Callable[..., None]) -> list[dict[str, Any]]:
    """One row per network, method and way: quartiles of the ratio to all ways, and peak memory."""
    rows = []
    for network in _NETWORKS[device.type]:
        for method, steps in STEPS.items():
            variants = [Variant(way, step) for way, step in steps.items()]
            for row in measure(NETWORKS[network], variants, device, seconds).rows:
                about = {"network": network, "method": method, "way": row.method}
                rows.append({**about, "ratio": row.ratio, "peak_mb": row.peak_mb})
                say(*about.values(), *row.ratio, row.peak_mb)
    return rows
