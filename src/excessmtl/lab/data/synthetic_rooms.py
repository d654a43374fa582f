"""`synthetic-rooms`: ray-cast rooms with exact labels, depth and normals, the stand-in for NYUv2."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark
from excessmtl.lab.data.dense import PAPER_RECIPE, dense_benchmark
from excessmtl.lab.data.room_render import View, render
from excessmtl.lab.data.room_scene import random_scene
from excessmtl.lab.data.tasks import IGNORED


@dataclass(frozen=True)
class Size:
    """How much is rendered, and the network and recipe that go with it."""

    scenes: tuple[int, int, int]
    """In the training, the validation and the test split."""
    height: int
    width: int
    levels: int
    channels: int
    recipe: Recipe


SIZES = {
    "small": Size((200, 40, 60), 48, 64, 3, 16, Recipe(1e-3, 1e-4, batch_size=8, epochs=30)),
    "paper": Size((795, 80, 654), 288, 384, 4, 64, PAPER_RECIPE),
}


@benchmark("synthetic-rooms", "ray-cast rooms: 13-class labels, depth and normals at every pixel")
def load(seed: int, *, size: str = "small", augment: bool = False) -> Benchmark:
    """Render the rooms.

    Args:
        seed: of the rooms. No room is in two splits.
        size: "small" (200 training scenes of 48 x 64 pixels, a small SegNet) or "paper" (795 of 288 x 384, the
            paper's; rendering takes minutes).
        augment: zoom and mirror the training scenes as the paper does with NYUv2.
    """
    if size not in SIZES:
        raise ValueError(f"size is {size!r}: choose one of {', '.join(SIZES)}")
    chosen = SIZES[size]
    streams = np.random.SeedSequence(seed).spawn(len(chosen.scenes))
    train, validation, test = (
        _split(stream.spawn(count), chosen) for stream, count in zip(streams, chosen.scenes, strict=True)
    )
    return dense_benchmark(
        "synthetic-rooms",
        f"ray-cast rooms, {chosen.scenes[0]} + {chosen.scenes[2]} scenes, {chosen.height} x {chosen.width}",
        (train, validation, test),
        chosen.recipe,
        levels=chosen.levels,
        width=chosen.channels,
        augment=augment,
    )


def _split(seeds: Sequence[np.random.SeedSequence], size: Size) -> Split:
    def scene(seed: np.random.SeedSequence) -> View:
        rng = np.random.default_rng(seed)
        return render(random_scene(rng), size.height, size.width, rng)

    # Threads suffice: numpy lets go of the interpreter while it works on large arrays.
    with ThreadPoolExecutor() as pool:
        views = list(pool.map(scene, seeds))
    image, label, depth, normals = (torch.from_numpy(np.stack(part)) for part in zip(*views, strict=True))
    # No targets along the edge, as in NYUv2, so that masks matter here as they do there.
    edge = max(1, size.height // 48)
    inner = torch.zeros(size.height, size.width, dtype=torch.bool)
    inner[edge:-edge, edge:-edge] = True
    targets = {"segmentation": label.where(inner, IGNORED), "depth": depth * inner, "normals": normals * inner}
    return Split(image, targets)
