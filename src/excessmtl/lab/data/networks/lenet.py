"""The small convolutional network of the MultiMNIST experiments."""

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two 5x5 convolutions, each pooled by two, then a layer of 80 units.

    `canvas`: height and width of the square grey image.
    """

    out_features = 80

    def __init__(self, canvas: int) -> None:
        super().__init__()
        side = ((canvas - 4) // 2 - 4) // 2
        if side < 1:
            raise ValueError(f"canvas is {canvas}: two 5x5 convolutions with pooling need at least 16 pixels")
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
