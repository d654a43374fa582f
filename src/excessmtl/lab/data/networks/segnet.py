"""SegNet (Badrinarayanan et al., PAMI 2017): an encoder whose pooling indices steer its mirrored decoder."""

from torch import Size, Tensor, nn
from torch.nn import functional as F

_MULTIPLES = (1, 2, 4, 8, 8)
_CONVOLUTIONS = (2, 2, 3, 3, 3)


def _level(before: int, after: int, convolutions: int) -> nn.Sequential:
    modules: list[nn.Module] = []
    for i in range(convolutions):
        modules += [
            nn.Conv2d(before if i == 0 else after, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    return nn.Sequential(*modules)


class SegNet(nn.Module):
    """Features at every pixel of the image, `out_features` of them.

    Args:
        levels: how many times the image is halved. The paper speaks of four encoder and four decoder layers;
            the usual network of the NYUv2 comparisons has five (24,943,296 parameters).
        width: channels of the first level; the deeper ones have 2, 4, 8 and 8 times as many.
    """

    def __init__(self, levels: int = 4, width: int = 64) -> None:
        super().__init__()
        if not 1 <= levels <= len(_MULTIPLES):
            raise ValueError(f"levels is {levels}: SegNet has between 1 and {len(_MULTIPLES)} of them")
        if width < 1:
            raise ValueError(f"width is {width}: the first level needs at least one channel")
        widths = [width * multiple for multiple in _MULTIPLES[:levels]]
        shallower = [width, *widths[:-1]]
        depths = _CONVOLUTIONS[:levels]
        self.encoder = nn.ModuleList(map(_level, [3, *widths[:-1]], widths, depths))
        self.decoder = nn.ModuleList(map(_level, widths, shallower, depths))
        self.out_features = width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_normal_(module.weight)
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, height, width) -> (batch, out_features, height, width)."""
        x = images
        pooled: list[tuple[Tensor, Size]] = []
        for level in self.encoder:
            x = level(x)
            size = x.shape[-2:]
            x, indices = F.max_pool2d(x, 2, return_indices=True)
            pooled.append((indices, size))
        for level, (indices, size) in zip(reversed(self.decoder), reversed(pooled), strict=True):
            # The size is passed on because an odd one is not twice its half.
            x = level(F.max_unpool2d(x, indices, (2, 2), output_size=size))
        return x


def dense_head(in_features: int, outputs: int) -> nn.Sequential:
    """Two convolutions (3x3, then 1x1) for tasks with a target at every pixel.

    There is no nonlinearity between them, as in the networks the paper compares on. Normals leave this head
    with any length; the loss and the metrics normalise them.
    """
    return nn.Sequential(
        nn.Conv2d(in_features, in_features, 3, padding=1),
        nn.Conv2d(in_features, outputs, 1),
    )
