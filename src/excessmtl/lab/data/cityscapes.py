"""Cityscapes in the array format of MTAN: `train` and `val`, each with `image`, `label_7` (or `label_19`) and `depth`.

Not in the paper, but in most comparisons of methods. The depth is the inverse one, from the disparity of two cameras.
"""

import math
from pathlib import Path

from excessmtl.lab.data.base import Benchmark, Recipe, benchmark
from excessmtl.lab.data.dense import dense_benchmark
from excessmtl.lab.data.kinds import depth, segmentation
from excessmtl.lab.data.map_arrays import Maps, read_scenes
from excessmtl.lab.data.tasks import Task

_CLASSES = (7, 19)
_RECIPE = Recipe(learning_rate=1e-4, weight_decay=0.0, batch_size=8, epochs=200)


@benchmark("cityscapes", "2,975 + 500 street scenes: 7-class labels and inverse depth", "synthetic-rooms")
def load(
    data: Path | None,
    seed: int,
    *,
    classes: int = 7,
    levels: int = 5,
    augment: bool = True,
    validation: float = 0.1,
) -> Benchmark:
    """Read the scenes into memory.

    Args:
        data: the folder that holds `train` and `val`; `val` becomes the test split, as in the literature.
        seed: not used here; the data is the same for every seed.
        classes: 7 reads the folder `label_7`, 19 `label_19`.
        levels: of the SegNet; the peers' has 5.
        augment: zoom and mirror the training scenes. As by the peers, the inverse depth is divided by the zoom.
        validation: share of the training scenes held out, evenly spread over the set; 0 trains on all.
    """
    if classes not in _CLASSES:
        raise ValueError(f"classes must be one of {list(_CLASSES)}, the folders of labels there are, found {classes!r}")
    maps = {
        "segmentation": Maps(f"label_{classes}", None, -1, classes - 1),
        "depth": Maps("depth", 1, 0, math.inf),
    }
    train, held_out, test = read_scenes("cityscapes", data, maps, validation)
    count = train.length("depth") + held_out.length("depth")
    return dense_benchmark(
        "cityscapes",
        f"Cityscapes, {count} + {test.length('depth')} scenes, {classes} classes",
        (train, held_out, test),
        tasks=(Task("segmentation", classes, segmentation), Task("depth", 1, depth)),
        recipe=_RECIPE,
        levels=levels,
        augment=augment,
    )
