import pytest
import torch

from excessmtl.lab.data.dense import SCALES, random_zoom, zoom_and_mirror

HEIGHT, WIDTH = 24, 36


def batch(n=4):
    g = torch.Generator().manual_seed(0)
    normals = torch.nn.functional.normalize(torch.randn(n, 3, HEIGHT, WIDTH, generator=g), dim=1)
    labels = torch.randint(-1, 13, (n, HEIGHT, WIDTH), generator=g).to(torch.int8)
    depth = torch.rand(n, 1, HEIGHT, WIDTH, generator=g) + 1
    return torch.randn(n, 3, HEIGHT, WIDTH, generator=g), {"segmentation": labels, "depth": depth, "normals": normals}


def change(images, targets, scale=1.0, left=0.0, top=0.0, mirror=False):
    each = [torch.full((len(images),), value) for value in (scale, left, top, mirror)]
    return zoom_and_mirror(images, targets, *each)


def assert_same(a, b):
    torch.testing.assert_close(a[0], b[0], atol=1e-4, rtol=0)
    for name, target in a[1].items():
        assert target.dtype == b[1][name].dtype
        assert torch.equal(target, b[1][name]), name


def test_a_mirror_swaps_left_and_right_and_turns_the_normals():
    images, targets = batch()
    mirrored = {name: target.flip(-1) for name, target in targets.items()}
    mirrored["normals"][:, 0] *= -1
    assert_same(change(images, targets, mirror=True), (images.flip(-1), mirrored))


def test_a_zoom_shows_the_part_asked_for():
    images, targets = batch()
    shown_images, shown = change(images, targets, scale=1.2, left=1 / 6, top=1 / 12)
    part = targets["segmentation"][:, 2:22, 6:]
    rows, columns = (torch.div(5 * (2 * torch.arange(n) + 1), 12, rounding_mode="floor") for n in (HEIGHT, WIDTH))
    assert torch.equal(shown["segmentation"], part[:, rows][:, :, columns])
    assert shown_images.shape == images.shape


def test_bilinear_images_follow_a_ramp_and_stay_aligned_with_the_labels():
    _, targets = batch(1)
    ramp = torch.arange(WIDTH).float().expand(1, 3, HEIGHT, WIDTH)
    targets["segmentation"] = ramp[:, 0].clone()
    image, shown = change(ramp, targets, scale=1.2, left=0.1, top=0.05, mirror=True)
    assert (image[:, 0] - shown["segmentation"]).abs().max() <= 0.5 + 1e-4
    torch.testing.assert_close(image[0, 0, 0].diff()[1:-1], torch.full((WIDTH - 3,), -1 / 1.2), atol=1e-3, rtol=0)


def test_a_wall_seen_straight_on_stays_where_its_size_says():
    """A square of known width on a wall: its width in metres follows from depth and pixels, zoomed or not."""
    wide, depth = 12, 3.0
    labels = torch.zeros(1, HEIGHT, WIDTH, dtype=torch.int8)
    labels[:, :, 12 : 12 + wide] = 1
    targets = {
        "segmentation": labels,
        "depth": torch.full((1, 1, HEIGHT, WIDTH), depth),
        "normals": torch.tensor([0, 0, -1.0]).view(1, 3, 1, 1).expand(1, 3, HEIGHT, WIDTH),
    }
    for scale in SCALES:
        _, shown = change(torch.zeros(1, 3, HEIGHT, WIDTH), targets, scale, left=0.5 - 0.5 / scale)
        metres = shown["depth"][0, 0, 0, 0] * (shown["segmentation"][0, 0] == 1).sum()
        assert metres.item() == pytest.approx(wide * depth, rel=0.06)
        assert torch.equal(shown["normals"], targets["normals"])


def test_random_augmentation_follows_its_generator():
    one, again, other = (random_zoom(*batch(), torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert_same(one, again)
    assert not torch.equal(one[0], other[0])


def test_all_scales_and_both_sides_occur_about_equally_often():
    n = 600
    targets = {"depth": torch.ones(n, 1, 2, 2), "normals": torch.ones(n, 3, 2, 2)}
    _, shown = random_zoom(torch.zeros(n, 3, 2, 2), targets, torch.Generator().manual_seed(0))
    scales = 1 / shown["depth"][:, 0, 0, 0]
    for scale in SCALES:
        assert torch.isclose(scales, torch.tensor(scale)).float().mean().item() == pytest.approx(1 / 3, abs=0.06)
    assert (shown["normals"][:, 0, 0, 0] < 0).float().mean().item() == pytest.approx(0.5, abs=0.06)
    assert (shown["normals"][:, 1:] == 1).all()
