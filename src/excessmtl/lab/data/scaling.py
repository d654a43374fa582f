"""Images brought to zero mean and unit variance by the statistics of the training split."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class PixelScaling:
    """uint8 images, [n, h, w] or [n, c, h, w], -> standardised floats [n, c, h, w]: a benchmark's `prepare`.

    `mean` and `std` have one number per channel, for pixels between 0 and 1.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Scale the images of a batch, wherever they lie."""
        images = images.unsqueeze(1) if images.ndim == 3 else images
        scale, shift = _constants(self.mean, self.std, images.device)
        return images.float() * scale + shift


@lru_cache(maxsize=16)
def _constants(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    # Kept per device: copying them there with every batch would make the host wait.
    scale = torch.tensor([1 / (255 * s) for s in std], device=device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=device)
    return scale[:, None, None], shift[:, None, None]


def pixel_scaling(images: Tensor) -> PixelScaling:
    """The scaling that standardises uint8 images, [n, h, w] or [n, c, h, w], channel by channel."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in images.unbind(1) if images.ndim == 4 else [images]:
        # Counting in blocks keeps the memory small where there are 60,000 images.
        blocks = [torch.bincount(block.flatten(), minlength=256) for block in torch.split(channel, 4096)]
        counts = torch.stack(blocks).sum(0)
        mean = float((counts * values).sum() / channel.numel())
        variance = float((counts * (values - mean) ** 2).sum() / channel.numel())
        means.append(mean)
        deviations.append(max(variance, 1e-12) ** 0.5)
    return PixelScaling(tuple(means), tuple(deviations))
