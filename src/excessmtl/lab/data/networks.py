"""The trunks of the benchmarks, written here so that no vision package is needed."""

from itertools import pairwise

import torch
from torch import Size, Tensor, nn
from torch.nn import functional as F


class MLP(nn.Sequential):
    """`layers` linear maps of width `hidden`, each followed by a ReLU; the paper's unless told otherwise."""

    def __init__(self, in_features: int, hidden: int = 128, layers: int = 3) -> None:
        if layers < 1:
            raise ValueError(f"layers is {layers}: a perceptron needs at least one")
        modules: list[nn.Module] = []
        for before, after in pairwise([in_features] + [hidden] * layers):
            modules += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*modules)
        self.out_features = hidden


class LeNet(nn.Module):
    """Two 5x5 convolutions, each pooled by two, then a layer of 80 units.

    `canvas`: height and width of the square grey image.
    """

    out_features = 80

    def __init__(self, canvas: int) -> None:
        super().__init__()
        side = ((canvas - 4) // 2 - 4) // 2
        self.features = nn.Sequential(
            nn.Conv2d(1, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(20 * side * side, self.out_features),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 1, canvas, canvas) -> (batch, 80)."""
        features: Tensor = self.features(images)
        return features


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, halved in size where the stride is 2."""
        y: Tensor = self.body(x) + self.shortcut(x)
        return y.relu()


class ResNet18(nn.Module):
    """Stem, four stages of two blocks each, global average pooling: 11,176,512 parameters, randomly initialised."""

    out_features = 512

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.stages = nn.Sequential(
            *(nn.Sequential(BasicBlock(a, b, stride), BasicBlock(b, b, 1)) for a, b, stride in stages)
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, height, width) -> (batch, 512)."""
        features: Tensor = self.pool(self.stages(self.stem(images)))
        return features


_MULTIPLES = (1, 2, 4, 8, 8)
_CONVOLUTIONS = (2, 2, 3, 3, 3)


def _level(before: int, after: int, convolutions: int) -> nn.Sequential:
    modules: list[nn.Module] = []
    for channels in [before] + [after] * (convolutions - 1):
        modules += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
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
    return nn.Sequential(nn.Conv2d(in_features, in_features, 3, padding=1), nn.Conv2d(in_features, outputs, 1))


ELEMENTS = ("H", "C", "N", "O", "F")
_REACH = 6.0
"""Angstroms from which an atom hears nothing."""
_CENTRES = 32
_ATOMS = 18.0
"""How many a molecule of QM9 has on average."""


class MoleculeNet(nn.Module):
    """Tables of atoms [batch, atoms, 4] -> [batch, width].

    A row is the number of the element, from 1 (0: no atom), and x, y, z in angstroms. Atoms start as a vector of their
    element; in each round an atom adds a function of the sum over all others of their vectors, times a filter that is a
    linear function of Gaussians of the distance. The sum over the atoms is the molecule.
    """

    centres: Tensor

    def __init__(self, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.out_features = width
        self.start = nn.Embedding(len(ELEMENTS) + 1, width, padding_idx=0)
        self.filters = nn.ModuleList(nn.Linear(_CENTRES, width, bias=False) for _ in range(rounds))
        self.updates = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(rounds)
        )
        self.read_out = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.register_buffer("centres", torch.linspace(0.5, _REACH, _CENTRES), persistent=False)

    def forward(self, atoms: Tensor) -> Tensor:
        """(batch, atoms, 4) -> (batch, width)."""
        elements, places = atoms[..., 0].long(), atoms[..., 1:]
        present = elements > 0
        edges = self._edges(places, present)
        h = self.start(elements)
        for filters, update in zip(self.filters, self.updates, strict=True):
            h = h + update((filters(edges) * h[:, None]).sum(2))
        each = torch.where(present[..., None], self.read_out(h), 0)
        return each.sum(1) / _ATOMS

    def _edges(self, places: Tensor, present: Tensor) -> Tensor:
        """[batch, atoms, atoms, centres] Gaussians of the distances, zero for an atom itself and beyond the reach."""
        apart = (places[:, :, None] - places[:, None]).square().sum(-1).add(1e-12).sqrt()
        near = 0.5 * (torch.pi * (apart / _REACH).clamp(max=1)).cos() + 0.5
        pairs = present[:, :, None] & present[:, None] & (apart > 1e-3)
        gaussians = (-((apart[..., None] - self.centres) * _CENTRES / _REACH).square() / 2).exp()
        return gaussians * torch.where(pairs, near, 0)[..., None]
