"""Office-Home, or any other tree of pictures domain/class/image: one classification task per domain."""

import re
from pathlib import Path

from torch import nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark
from excessmtl.lab.data.image_tree import PARTS, ImageTree, load_image_tree
from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.networks.resnet import ResNet18
from excessmtl.lab.data.scaling import PixelScaling
from excessmtl.lab.data.tasks import Task

_IMAGENET = PixelScaling(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@benchmark("office-home", "any tree domain/class/image (Office-Home, PACS), a task per domain", "digit-domains")
def load(data: Path | None, seed: int, *, size: int = 64, split_seed: int = 0) -> Benchmark:
    """One task per domain of an image tree.

    Args:
        data: the folder, or a .tar, .tar.gz, .tar.xz or .zip archive of it.
        seed: not used here; the data is the same for every seed.
        size: pictures are resized to size x size; the paper's is 224.
        split_seed: decides which pictures are for training (60 %), validation (20 %) and test (20 %).
    """
    if not isinstance(size, int) or not 32 <= size <= 1024:
        raise ValueError(f"size must be a whole number from 32 to 1024, got {size!r}.")
    path = sources.find("office-home", data)
    tree = load_image_tree(path, size, split_seed)
    names = {domain: re.sub(r"[\s.]+", "_", domain) for domain in tree.domains}
    if len(set(names.values())) < len(names):
        raise ValueError(f"{path}: the domains {', '.join(tree.domains)} differ only in blanks and dots; rename one.")
    classes = len(tree.classes)
    images = sum(len(labels) for labels in tree.labels.values())
    return Benchmark(
        "office-home",
        f"{path.name}: {images:,} pictures, {len(names)} domains, {classes} classes, {size} px",
        tuple(Task(name, classes, classification) for name in names.values()),
        *(_part(tree, names, part) for part in PARTS),
        recipe=Recipe(learning_rate=1e-4, weight_decay=1e-5, batch_size=64, epochs=100),
        noisy_tasks=(_noisy(list(names.values())),),
        build_trunk=ResNet18,
        build_head=lambda task: nn.Linear(512, task.outputs),
        prepare=_IMAGENET,
    )


def _part(tree: ImageTree, names: dict[str, str], part: str) -> Split:
    return Split(
        {name: tree.images[domain, part] for domain, name in names.items()},
        {name: tree.labels[domain, part] for domain, name in names.items()},
    )


def _noisy(domains: list[str]) -> str:
    """Office-Home's noisy domain in the paper; in PACS the one closest to it in kind; else any fixed one."""
    return next((name for name in ("Product", "cartoon") if name in domains), domains[1])
