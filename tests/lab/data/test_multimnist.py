import numpy as np
import pytest
import torch

from excessmtl.lab.data.base import DataNotFoundError, registry
from excessmtl.lab.data.digits import load_digits, to_idx
from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.multimnist import _draw, load
from excessmtl.lab.data.tasks import Task


def write_mnist(folder, train=40, test=20):
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        images = rng.integers(1, 256, (count, 28, 28), dtype=np.uint8)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(to_idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(to_idx(np.arange(count, dtype=np.uint8) % 10))
    return folder


def test_the_defaults_without_data():
    bench = registry()["multimnist"].load(None, 0)
    assert bench.source.startswith("bundled digits, 4,000 + 1,000")
    assert bench.tasks == (Task("top_left", 10, classification), Task("bottom_right", 10, classification))
    assert bench.noisy_tasks == ("bottom_right",)
    assert [bench.train.length("top_left"), bench.validation.length("top_left")] == [4000, 400]
    assert bench.test.length("bottom_right") == 1000
    assert bench.train.inputs.dtype == torch.uint8
    assert bench.train.inputs.shape == (4000, 36, 36)


@pytest.mark.parametrize(("canvas", "offset"), [(36, 8), (56, 28)])
def test_digits_stand_where_they_should_and_the_brighter_pixel_wins(canvas, offset):
    first = torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8)
    second = torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8)
    expected = torch.zeros(2, 3, canvas, canvas, dtype=torch.uint8)
    expected[0, :, :28, :28] = first
    expected[1, :, offset : offset + 28, offset : offset + 28] = second
    assert torch.equal(_draw(first, second, canvas), expected.amax(0))


def test_canvas_28_is_resized_from_36_with_the_digits_six_pixels_apart():
    digits, _ = load_digits()
    first, second = digits.images[:5], digits.images[5:10]
    large = torch.zeros(5, 36, 36, dtype=torch.uint8)
    large[:, :28, :28] = first
    large[:, 6:34, 6:34] = torch.maximum(large[:, 6:34, 6:34], second)
    small = _draw(first, second, 28)
    assert small.shape == (5, 28, 28)
    for y in range(28):
        for x in range(28):
            assert torch.equal(small[:, y, x], large[:, int((y + 0.5) * 36 / 28), int((x + 0.5) * 36 / 28)])


def test_labels_belong_to_the_digits():
    bench = load(None, 0, canvas=56)
    train, _ = load_digits()
    known = {bytes(image.flatten().tolist()): int(label) for image, label in zip(*vars(train).values(), strict=True)}
    for position in range(0, 3600, 400):
        image = bench.train.inputs[position]
        for name, corner in (("top_left", image[:28, :28]), ("bottom_right", image[28:, 28:])):
            assert known[bytes(corner.flatten().tolist())] == bench.train.targets[name][position]


def test_validation_digits_are_never_training_digits():
    bench = load(None, 0, canvas=56)
    corners = [
        {bytes(image.flatten().tolist()) for half in (slice(28), slice(28, 56)) for image in part[:, half, half]}
        for part in (bench.train.inputs, bench.validation.inputs)
    ]
    assert [len(found) for found in corners] == [3600, 400]
    assert not corners[0] & corners[1]


def test_pairs_may_be_fewer_or_more_than_the_digits(tmp_path):
    few = load(None, 0, pairs=100)
    assert [few.train.length("top_left"), few.validation.length("top_left")] == [100, 400]
    many = load(write_mnist(tmp_path), 0, pairs=200)
    assert many.train.targets["top_left"].bincount().sum() == 200
    assert len(many.train.inputs.flatten(1).unique(dim=0)) > 150


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="canvas must be 28, 36 or 56, got 32"):
        load(None, 0, canvas=32)
    with pytest.raises(ValueError, match=r"pairs must be .* got 3"):
        load(None, 0, pairs=3)
    with pytest.raises(DataNotFoundError, match="holds neither train-images-idx3-ubyte nor"):
        load(tmp_path, 0)
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(to_idx(np.zeros(19, np.uint8)))
    with pytest.raises(ValueError, match="the t10k files hold"):
        load(tmp_path, 0)


def test_the_bundled_digits_on_request_whatever_is_in_the_cache(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setattr("excessmtl.lab.data.sources.where", lambda name: tmp_path)
    assert load(None, 0).source.startswith("MNIST")
    assert load(None, 0, bundled=True).source.startswith("bundled digits")
    with pytest.raises(ValueError, match="exclude each other"):
        load(tmp_path, 0, bundled=True)
