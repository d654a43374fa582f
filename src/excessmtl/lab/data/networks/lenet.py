"""The small convolutional network of the MultiMNIST experiments."""

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two 5x5 convolutions, each pooled by two, then a layer of 80 units.

    Args:
        canvas: height and width of the square input image.
        channels: how many colour channels it has.
    """

    out_features = 80

    def __init__(self, canvas: int, channels: int = 1) -> None:
        super().__init__()
        side = ((canvas - 4) // 2 - 4) // 2
        if side < 1:
            raise ValueError(f"canvas is {canvas}: two 5x5 convolutions with pooling need at least 16 pixels")
        self.features = nn.Sequential(
            nn.Conv2d(channels, 10, 5),
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
        """(batch, channels, canvas, canvas) -> (batch, 80)."""
        features: Tensor = self.features(images)
        return features
