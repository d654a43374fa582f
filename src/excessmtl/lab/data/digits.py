"""The 5,000 real handwritten digits that travel with the package, so that all of it runs offline."""

from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch
from torch import Tensor

TRAIN_DIGITS = 4000


@dataclass(frozen=True)
class Digits:
    """Images, uint8 [n, 28, 28], and their labels, int64 [n]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice | Tensor) -> "Digits":
        return Digits(self.images[which], self.labels[which])


def load_digits() -> tuple[Digits, Digits]:
    """4,000 digits to train on and 1,000 to test on: a subset of MNIST, every class equally often in both.

    The file is stored shuffled in rounds of ten, each class once per round: every slice that starts and ends
    at a multiple of ten is balanced, however many digits a benchmark takes.
    """
    path = resources.files(__package__).joinpath("bundled", "digits.npz")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        images = torch.from_numpy(stored["images"])
        labels = torch.from_numpy(stored["labels"]).long()
    digits = Digits(images, labels)
    return digits[:TRAIN_DIGITS], digits[TRAIN_DIGITS:]
