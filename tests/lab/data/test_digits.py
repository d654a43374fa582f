import torch

from excessmtl.lab.data.digits import load_digits


def test_sizes_types_and_balance() -> None:
    train, test = load_digits()
    assert (len(train), len(test)) == (4000, 1000)
    for digits in (train, test):
        assert digits.images.dtype == torch.uint8
        assert digits.images.shape == (len(digits), 28, 28)
        assert digits.labels.dtype == torch.int64
        assert digits.labels.bincount().tolist() == [len(digits) // 10] * 10


def test_every_round_of_ten_holds_every_class_once() -> None:
    train, test = load_digits()
    rounds = torch.cat([train.labels, test.labels]).view(-1, 10)
    assert (rounds.sort(1).values == torch.arange(10)).all()


def test_no_digit_occurs_twice() -> None:
    images = torch.cat([part.images for part in load_digits()])
    assert len(images.flatten(1).unique(dim=0)) == 5000


def test_labels_belong_to_the_images() -> None:
    """The mean picture of each class, learnt on one part, recognises the other: a shifted order would not."""
    train, test = load_digits()
    flat, other = (part.images.flatten(1).float() for part in (train, test))
    means = torch.stack([flat[train.labels == digit].mean(0) for digit in range(10)])
    nearest = torch.cdist(other, means).argmin(1)
    assert (nearest == test.labels).float().mean() > 0.75
