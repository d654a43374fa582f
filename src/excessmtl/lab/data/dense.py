"""What NYUv2 and its stand-in share: tasks with a target at every pixel, one network, one augmentation."""

from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from excessmtl.lab.data.base import Benchmark, Recipe, Split, Targets
from excessmtl.lab.data.kinds import depth, normals, segmentation
from excessmtl.lab.data.networks import SegNet, dense_head
from excessmtl.lab.data.pictures import pixel_scaling
from excessmtl.lab.data.tasks import Task

TASKS = (Task("segmentation", 13, segmentation), Task("depth", 1, depth), Task("normals", 3, normals))
PAPER_RECIPE = Recipe(learning_rate=1e-4, weight_decay=1e-3, batch_size=2, epochs=200)
SCALES = (1.0, 1.2, 1.5)
"""Of the zoom."""


def dense_benchmark(
    name: str,
    source: str,
    splits: tuple[Split, Split, Split],
    recipe: Recipe,
    *,
    levels: int,
    width: int = 64,
    augment: bool,
) -> Benchmark:
    """The three tasks on a SegNet of the given size, from training, validation and test split."""
    images = splits[0].inputs
    assert isinstance(images, Tensor)
    height, width_px = images.shape[-2:]
    if min(height, width_px) < 2**levels:
        raise ValueError(f"levels is {levels}, but scenes of {height} x {width_px} pixels cannot be halved that often")
    return Benchmark(
        name,
        source,
        TASKS,
        *splits,
        recipe=recipe,
        noisy_tasks=("segmentation",),
        build_trunk=partial(SegNet, levels, width),
        build_head=lambda task: dense_head(width, task.outputs),
        prepare=pixel_scaling(images),
        augment=random_zoom if augment else None,
    )


def random_zoom(images: Tensor, targets: Targets, generator: Generator) -> tuple[Tensor, Targets]:
    """Zoom by 1, 1.2 or 1.5 into a random place, then mirror left and right with probability one half."""
    n = len(images)
    scale = torch.tensor(SCALES)[torch.randint(len(SCALES), (n,), generator=generator)]
    left, top = torch.rand(2, n, generator=generator) * (1 - 1 / scale)
    mirror = torch.rand(n, generator=generator) < 0.5
    return zoom_and_mirror(images, targets, scale, left, top, mirror)


def zoom_and_mirror(
    images: Tensor, targets: Targets, scale: Tensor, left: Tensor, top: Tensor, mirror: Tensor
) -> tuple[Tensor, Targets]:
    """Show, for each image of a batch, the part of one `scale`-th in width and height that starts at `left`, `top`.

    `left` and `top` are in image widths and heights; where `mirror` is true, left and right are swapped afterwards.
    These and `scale` are (n,), on the CPU. Images are interpolated between their pixels, maps take the nearest pixel.
    Depth is divided by the scale (what looks larger is nearer), and the first component of the normals changes its sign
    in a mirror. Zooming leaves the normals as they are, as the peers do; that is exact only for surfaces that face the
    camera.
    """
    sign = 1 - 2 * mirror.float()
    corners = torch.zeros(len(images), 2, 3)
    corners[:, 0, 0], corners[:, 1, 1] = sign / scale, 1 / scale
    corners[:, 0, 2], corners[:, 1, 2] = 2 * left + 1 / scale - 1, 2 * top + 1 / scale - 1
    device = images.device
    corners, scale, sign = (x.to(device, non_blocking=True) for x in (corners, scale, sign))
    grid = F.affine_grid(corners, [len(images), 1, *images.shape[-2:]], align_corners=False)

    def sample(maps: Tensor, mode: str) -> Tensor:
        return F.grid_sample(maps, grid, mode=mode, padding_mode="border", align_corners=False)

    shown: Targets = {}
    for name, target in targets.items():
        maps = target if target.ndim == 4 else target[:, None]
        maps = sample(maps.float(), "nearest")
        if name == "depth":
            maps = maps / scale.view(-1, 1, 1, 1)
        elif name == "normals":
            maps = torch.cat([maps[:, :1] * sign.view(-1, 1, 1, 1), maps[:, 1:]], dim=1)
        shown[name] = maps.reshape(target.shape).to(target.dtype)
    return sample(images, "bilinear"), shown
