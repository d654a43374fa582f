"""Office-Home, or any other tree of pictures domain/class/image: one classification task per domain.

The tree is decoded once, into a memory-mapped file in the cache folder.
"""

import json
import os
import re
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import nn

from excessmtl.files import write_whole
from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, cache_folder
from excessmtl.lab.data.downloads import is_archive, unpacked
from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.networks import ResNet18
from excessmtl.lab.data.pictures import PixelScaling, decode, open_decoded, stamp_of
from excessmtl.lab.data.tasks import Task

_IMAGENET = PixelScaling(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
_PARTS = 3
"""Training, validation and test."""
_FORMAT = 1
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_LAYOUT = "pictures must lie at domain/class/picture"
_DEEPEST = 8
"""Folders below each other in a tree; a link to a folder above it has no end."""


@benchmark("office-home", "any tree domain/class/image (Office-Home, PACS), a task per domain", "digit-domains")
def load(data: Path | None, *, size: int = 64, split_seed: int = 0) -> Benchmark:
    """One task per domain of an image tree.

    Args:
        data: the folder, or a .tar, .tar.gz, .tar.xz or .zip archive of it.
        size: pictures are resized to size x size; the paper's is 224.
        split_seed: decides which pictures are for training (60 %), validation (20 %) and test (20 %).
    """
    if not isinstance(size, int) or not 32 <= size <= 1024:
        raise ValueError(f"size must be a whole number from 32 to 1024, got {size!r}.")
    path = sources.find("office-home", data)
    stored, index = _decoded(path, size, split_seed)
    domains, classes, counts = index["domains"], len(index["classes"]), index["counts"]
    names = [re.sub(r"[\s.]+", "_", domain) for domain in domains]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: the domains {', '.join(domains)} differ only in blanks and dots; rename one.")
    inputs, targets = (
        [dict(zip(names, torch.split(own, counts)[part::_PARTS], strict=True)) for part in range(_PARTS)]
        for own in (open_decoded(stored), torch.tensor(index["labels"]))
    )
    return Benchmark(
        "office-home",
        f"{path.name}: {sum(counts):,} pictures, {len(names)} domains, {classes} classes, {size} px",
        tuple(Task(name, classes, classification) for name in names),
        *map(Split, inputs, targets),
        recipe=Recipe(learning_rate=1e-4, weight_decay=1e-5, batch_size=64, epochs=100),
        # The paper's in Office-Home; in PACS the one closest to it in kind; else any fixed one.
        noisy_tasks=(next((name for name in ("Product", "cartoon") if name in names), names[1]),),
        build_trunk=ResNet18,
        build_head=lambda task: nn.Linear(512, task.outputs),
        prepare=_IMAGENET,
    )


def _decoded(path: Path, size: int, split_seed: int) -> tuple[Path, dict[str, list[Any]]]:
    """The file of the pictures of a folder or an archive, and what they are (`_arranged`).

    The file is made anew when a name, size or time of change in the tree is not what it was.
    """
    names = None if is_archive(path) else _files_below(path)
    files = [path] if names is None else [path / name for name in names]
    stamp = stamp_of(files, _FORMAT, str(path.resolve()), size, split_seed)
    stored = cache_folder() / "image-trees" / f"{path.name}-{size}-{stamp}.npy"
    index = stored.with_suffix(".json")
    if not (stored.is_file() and index.is_file()):
        with unpacked(path) if names is None else nullcontext(path) as root:
            order, arranged = _arranged(path, names or _files_below(root), split_seed)
            decode(root, order, size, stored, path)
        # Written last: where it stands, the images beside it are complete.
        write_whole(index, json.dumps(arranged).encode())
    return stored, json.loads(index.read_text(encoding="utf-8"))


def _arranged(root: Path, names: Iterable[str], split_seed: int) -> tuple[list[str], dict[str, list[Any]]]:
    """The files in the order in which they are stored; the domains, the classes, and the label of every file.

    Each class of each domain is split 60/20/20 by `split_seed` alone. The parts of a domain follow each other, `counts`
    long, so that a part is a slice of the file and needs no memory of its own.
    """
    cells: dict[str, dict[str, list[str]]] = {}
    tops: dict[tuple[str, ...], str] = {}
    for name in sorted(set(filter(_is_picture, names))):
        *top, domain, label, _ = ("", "", *PurePosixPath(name).parts)
        if domain == "" or label == "":
            raise ValueError(f"{root}: '{name}' is out of place, {_LAYOUT}.")
        tops.setdefault(tuple(top), name)
        cells.setdefault(domain, {}).setdefault(label, []).append(name)
    if len(tops) > 1:
        first, second = list(tops.values())[:2]
        raise ValueError(f"{root}: '{first}' and '{second}' lie at different depths or folders, {_LAYOUT}.")
    if len(cells) < 2:
        raise ValueError(f"{root} holds {len(cells)} domains of pictures, expected at least 2: {_LAYOUT}.")
    classes = sorted(set().union(*cells.values()))
    order: list[str] = []
    labels: list[int] = []
    counts = []
    for number, (domain, own) in enumerate(cells.items()):
        for name in classes:
            if len(own.get(name, ())) < _PARTS:
                raise ValueError(
                    f"{root}: domain '{domain}' has {len(own.get(name, ()))} pictures of class '{name}'; "
                    "every domain needs at least 3 of every class, one for each part."
                )
        rng = np.random.default_rng((split_seed, number, *b"image tree"))
        split = [_split(own[name], rng) for name in classes]
        for part in range(_PARTS):
            order += [file for files in split for file in files[part]]
            labels += [label for label, files in enumerate(split) for _ in files[part]]
            counts.append(sum(len(files[part]) for files in split))
    return order, {"domains": list(cells), "classes": classes, "counts": counts, "labels": labels}


def _split(files: list[str], rng: np.random.Generator) -> tuple[list[str], list[str], list[str]]:
    shuffled = [files[i] for i in rng.permutation(len(files))]
    share = max(1, round(len(files) / 5))
    return shuffled[2 * share :], shuffled[:share], shuffled[share : 2 * share]


def _is_picture(name: str) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
    return name.lower().endswith(_SUFFIXES) and not hidden


def _files_below(root: Path) -> list[str]:
    if not root.is_dir():
        raise ValueError(f"{root} is neither a folder nor a .tar, .tar.gz, .tar.xz or .zip archive.")
    pictures = []
    for folder, _, names in os.walk(root, followlinks=True):
        if len(Path(folder).relative_to(root).parts) > _DEEPEST:
            raise ValueError(f"{folder} lies too deep, perhaps by a link that leads back; {_LAYOUT}")
        pictures += [Path(folder, name) for name in names if _is_picture(name)]
    odd = next((name for name in pictures if not name.is_file()), None)
    if odd is not None:  # reading a pipe or a device may never end
        raise ValueError(f"{odd} is not a plain file (a pipe, a device or a broken link); remove it")
    return sorted(name.relative_to(root).as_posix() for name in pictures)
