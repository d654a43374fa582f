"""Pictures as addresses that hold the whole picture: those in the folder of the runs, and samples made small."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from excessmtl.diagnosis.inputs import HeldOut
from excessmtl.files import is_plain_file
from excessmtl.lab.data.base import Split

_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
_SIDE, _LEAST_SIDE = 48, 8
"""Pixels of a small picture, and of what is a picture at all."""


def address(content: bytes, kind: str = ".png") -> str:
    """An address that holds a file of this kind: the page needs no other one."""
    return f"data:{_KINDS[kind]};base64,{base64.b64encode(content).decode()}"


def pictures_in(folder: Path) -> list[dict[str, str]]:
    """Name and address of every picture below `folder`, once: of the same picture as SVG and PNG, the smaller file.

    Links that lead out of the folder are left out: the page may be passed on, and what they point to may not.
    """
    found: dict[Path, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _KINDS and is_plain_file(path, folder):
            other = found.get(path.with_suffix(""))
            if other is None or path.stat().st_size < other.stat().st_size:
                found[path.with_suffix("")] = path
    return [{"name": path.stem, "address": address(path.read_bytes(), path.suffix)} for path in found.values()]


def samples_of(split: Split, task: HeldOut) -> Tensor | None:
    """[n, height, width] or [n, channels, height, width]; None where the samples of the task are not pictures."""
    inputs = split.inputs.get(task.task) if isinstance(split.inputs, Mapping) else split.inputs
    if not isinstance(inputs, Tensor) or inputs.ndim not in (3, 4) or min(inputs.shape[-2:]) < _LEAST_SIDE:
        return None
    if inputs.ndim == 4 and inputs.shape[1] not in (1, 3):
        return None
    # Places in a map are samples too, and more than there are pictures.
    return inputs if len(inputs) == task.samples + task.unlabelled + task.broken else None


def thumbnail(picture: Tensor) -> str:
    """The address of a PNG of at most 48 pixels a side; numbers that are no bytes are stretched from black to white."""
    from PIL import Image

    if picture.dtype != torch.uint8:
        low, high = picture.min(), picture.max()
        picture = ((picture - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8)
    if picture.ndim == 3:
        picture = picture[0] if len(picture) == 1 else picture.permute(1, 2, 0)
    image = Image.fromarray(picture.contiguous().cpu().numpy())
    image.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return address(file.getvalue())
