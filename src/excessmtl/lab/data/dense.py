"""What NYUv2, its stand-in and Cityscapes share: tasks with a target at every pixel, one network, one recipe."""

from functools import partial

from torch import Tensor

from excessmtl.lab.data.augment import dense_augment
from excessmtl.lab.data.base import Benchmark, Recipe, Split
from excessmtl.lab.data.kinds import depth, normals, segmentation
from excessmtl.lab.data.networks.segnet import SegNet, dense_head
from excessmtl.lab.data.scaling import pixel_scaling
from excessmtl.lab.data.tasks import Task

TASKS = (
    Task("segmentation", 13, segmentation),
    Task("depth", 1, depth),
    Task("normals", 3, normals),
)
PAPER_RECIPE = Recipe(learning_rate=1e-4, weight_decay=1e-3, batch_size=2, epochs=200)


def dense_benchmark(
    name: str,
    source: str,
    splits: tuple[Split, Split, Split],
    *,
    tasks: tuple[Task, ...] = TASKS,
    recipe: Recipe = PAPER_RECIPE,
    levels: int = 4,
    width: int = 64,
    augment: bool = True,
) -> Benchmark:
    """A benchmark of these tasks on a SegNet of the given size, from training, validation and test split."""
    images = splits[0].inputs
    assert isinstance(images, Tensor)
    height, width_px = images.shape[-2:]
    if min(height, width_px) < 2**levels:
        raise ValueError(f"levels is {levels}, but scenes of {height} x {width_px} pixels cannot be halved that often")
    return Benchmark(
        name,
        source,
        tasks,
        *splits,
        recipe=recipe,
        noisy_tasks=("segmentation",),
        build_trunk=partial(SegNet, levels, width),
        build_head=lambda task: dense_head(width, task.outputs),
        prepare=pixel_scaling(images),
        augment=dense_augment(tasks) if augment else None,
    )
