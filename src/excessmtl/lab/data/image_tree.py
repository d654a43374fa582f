"""Trees of pictures, domain/class/image, decoded once into a memory-mapped file in the cache folder."""

import json
import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from excessmtl.files import write_whole
from excessmtl.lab.data.archives import is_archive, unpacked
from excessmtl.lab.data.pictures import decode, open_decoded, stamp_of
from excessmtl.lab.data.sources import cache_folder

PARTS = ("train", "validation", "test")
_FORMAT = 1
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_LAYOUT = "pictures must lie at domain/class/picture"


@dataclass(frozen=True)
class ImageTree:
    """The decoded tree: images, uint8 [n, 3, size, size], and labels of each part of each domain."""

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    images: dict[tuple[str, str], Tensor]
    """(domain, part) -> images; they stay in the file until they are looked at."""
    labels: dict[tuple[str, str], Tensor]


def load_image_tree(path: Path, size: int, split_seed: int = 0) -> ImageTree:
    """Read the tree at `path`, a folder or an archive, with every picture resized to `size` x `size`.

    Each class of each domain is split 60/20/20 into training, validation and test by `split_seed` alone. The
    parts lie one after the other in the cached file, so that a part is a slice of it and needs no memory of
    its own. The file is made anew when a name, size or time of change in the tree is not what it was.
    """
    names = None if is_archive(path) else _files_below(path)
    files = [path] if names is None else [path / name for name in names]
    stamp = stamp_of(files, _FORMAT, str(path.resolve()), size, split_seed)
    stored = cache_folder() / "image-trees" / f"{path.name}-{size}-{stamp}.npy"
    index = stored.with_suffix(".json")
    if not (stored.is_file() and index.is_file()):
        with unpacked(path) if names is None else nullcontext(path) as root:
            order, arranged = _arranged(path, names or _files_below(root), split_seed)
            decode(path, ((name, (root / name).read_bytes()) for name in order), order, size, stored)
        # Written last: where it stands, the images beside it are complete.
        write_whole(index, json.dumps(arranged).encode())
    return _open(stored, json.loads(index.read_text(encoding="utf-8")))


def _arranged(root: Path, names: Iterable[str], split_seed: int) -> tuple[list[str], dict[str, list[Any]]]:
    """The files in the order in which they are stored, and which domain, class and part each of them is."""
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
            if len(own.get(name, ())) < 3:
                raise ValueError(
                    f"{root}: domain '{domain}' has {len(own.get(name, ()))} pictures of class '{name}'; "
                    "every domain needs at least 3 of every class, one for each part."
                )
        rng = np.random.default_rng((split_seed, number, *b"image tree"))
        split = [_split(own[name], rng) for name in classes]
        for part in range(len(PARTS)):
            members = [(file, label) for label, files in enumerate(split) for file in files[part]]
            order += [file for file, _ in members]
            labels += [label for _, label in members]
            counts.append(len(members))
    return order, {"domains": list(cells), "classes": classes, "counts": counts, "labels": labels}


def _split(files: list[str], rng: np.random.Generator) -> tuple[list[str], list[str], list[str]]:
    shuffled = [files[i] for i in rng.permutation(len(files))]
    share = max(1, round(len(files) / 5))
    return shuffled[2 * share :], shuffled[:share], shuffled[share : 2 * share]


def _is_picture(name: str) -> bool:
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
    return name.lower().endswith(_SUFFIXES) and not hidden


def _files_below(root: Path) -> list[str]:
    if not root.is_dir():
        raise ValueError(f"{root} is neither a folder nor a .tar, .tar.gz, .tar.xz or .zip archive.")
    pictures = []
    for folder, _, names in os.walk(root, followlinks=True):
        _refuse_loop(root, Path(folder))
        pictures += [Path(folder, name) for name in names if _is_picture(name)]
    odd = next((name for name in pictures if not name.is_file()), None)
    if odd is not None:  # reading a pipe or a device may never end
        raise ValueError(f"{odd} is not a plain file (a pipe, a device or a broken link); remove it")
    return sorted(name.relative_to(root).as_posix() for name in pictures)


def _refuse_loop(root: Path, folder: Path) -> None:
    """A link to a folder above it has no end, and the tree below it is none of `domain/class/picture`."""
    if folder == root or not folder.is_symlink():
        return
    target, above = folder.resolve(), [folder.parent, *folder.parent.parents]
    if any(parent.resolve().is_relative_to(target) for parent in above[: len(folder.relative_to(root).parts)]):
        raise ValueError(f"{folder} is a link that leads back to {target}, in which it lies; remove it")


def _open(stored: Path, index: dict[str, list[Any]]) -> ImageTree:
    images = open_decoded(stored)
    labels = torch.tensor(index["labels"])
    keys = [(domain, part) for domain in index["domains"] for part in PARTS]
    return ImageTree(
        tuple(index["domains"]),
        tuple(index["classes"]),
        dict(zip(keys, torch.split(images, index["counts"]), strict=True)),
        dict(zip(keys, torch.split(labels, index["counts"]), strict=True)),
    )
