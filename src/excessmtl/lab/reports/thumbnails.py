"""Small pictures of samples, as addresses that hold the whole picture."""

import base64
import io
from collections.abc import Mapping

import torch
from torch import Tensor

from excessmtl.diagnosis.inputs import HeldOut
from excessmtl.lab.data.base import Split

_SIDE = 48
_LEAST_SIDE = 8


def pictures_of(split: Split, task: HeldOut) -> Tensor | None:
    """[n, height, width] or [n, channels, height, width]; None where the samples of the task are not pictures."""
    inputs = split.inputs.get(task.task) if isinstance(split.inputs, Mapping) else split.inputs
    if not isinstance(inputs, Tensor) or inputs.ndim not in (3, 4) or min(inputs.shape[-2:]) < _LEAST_SIDE:
        return None
    if inputs.ndim == 4 and inputs.shape[1] not in (1, 3):
        return None
    # Places in a map are samples too, and more than there are pictures.
    return inputs if len(inputs) == task.samples + task.unlabelled + task.broken else None


def address(picture: Tensor) -> str:
    """A PNG of at most 48 pixels a side; numbers that are no bytes are stretched from black to white."""
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
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
