"""ResNet-18 (He et al., CVPR 2016) up to the pooled features, without pretraining."""

from torch import Tensor, nn


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
