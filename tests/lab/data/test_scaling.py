import torch

from excessmtl.lab.data.pictures import pixel_scaling


def test_pixel_statistics_are_those_of_the_floats():
    images = torch.randint(0, 256, (5000, 4, 4), dtype=torch.uint8)
    scaled = pixel_scaling(images)(images)
    assert scaled.shape == (5000, 1, 4, 4)
    assert abs(float(scaled.mean())) < 1e-5
    assert abs(float(scaled.std()) - 1) < 1e-4


def test_black_images_stay_finite():
    images = torch.zeros(3, 4, 4, dtype=torch.uint8)
    assert pixel_scaling(images)(images).isfinite().all()
