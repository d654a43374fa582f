"""NYUv2 in the array format of MTAN: `train` and `val`, each with `image`, `label`, `depth` and `normal`."""

import math
from pathlib import Path

from excessmtl.lab.data.base import Benchmark, benchmark
from excessmtl.lab.data.dense import TASKS, dense_benchmark
from excessmtl.lab.data.map_arrays import Maps, read_scenes

_MAPS = {
    "segmentation": Maps("label", None, -1, TASKS[0].outputs - 1),
    "depth": Maps("depth", 1, 0, math.inf),
    "normals": Maps("normal", 3, -1.01, 1.01),
}


@benchmark("nyuv2", "795 + 654 indoor scenes: 13-class labels, depth and normals", "synthetic-rooms")
def load(data: Path | None, seed: int, *, levels: int = 4, augment: bool = True, validation: float = 0.1) -> Benchmark:
    """Read the scenes into memory.

    Args:
        data: the folder that holds `train` and `val`; `val` becomes the test split, as in the literature.
        seed: not used here; the data is the same for every seed.
        levels: of the SegNet: 4 as in the paper, 5 as in the peers' comparisons.
        augment: zoom and mirror the training scenes.
        validation: share of the training scenes held out, evenly spread over the set; 0 trains on all.
    """
    train, held_out, test = read_scenes("nyuv2", data, _MAPS, validation)
    count = train.length("depth") + held_out.length("depth")
    return dense_benchmark(
        "nyuv2",
        f"NYUv2, {count} + {test.length('depth')} scenes",
        (train, held_out, test),
        levels=levels,
        augment=augment,
    )
