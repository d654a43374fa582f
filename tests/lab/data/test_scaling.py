import torch

from excessmtl.lab.data.base import standardise
from excessmtl.lab.data.pictures import PixelScaling, pixel_scaling


def test_pixel_statistics_are_those_of_the_floats() -> None:
    images = torch.randint(0, 256, (5000, 4, 4), dtype=torch.uint8)
    scaled = pixel_scaling(images)(images)
    assert scaled.shape == (5000, 1, 4, 4)
    assert abs(float(scaled.mean())) < 1e-5
    assert abs(float(scaled.std()) - 1) < 1e-4


def test_every_channel_has_its_own_scale() -> None:
    images = torch.full((1, 3, 2, 2), 51, dtype=torch.uint8)
    scaled = PixelScaling((0.2, 0.1, 0.0), (1.0, 0.5, 0.1))(images)
    torch.testing.assert_close(scaled[0, :, 0, 0], torch.tensor([0.0, 0.2, 2.0]))


def test_black_images_stay_finite() -> None:
    images = torch.zeros(3, 4, 4, dtype=torch.uint8)
    assert pixel_scaling(images)(images).isfinite().all()


def test_others_are_scaled_by_the_training_statistics() -> None:
    train = torch.tensor([[0.0, 7.0], [4.0, 7.0]], dtype=torch.float64)
    other = torch.tensor([[6.0, 8.0]], dtype=torch.float64)
    scaled, moved = standardise(train, other)
    assert scaled.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert moved.tolist() == [[2.0, 1.0]]
    assert scaled.dtype == torch.float32
