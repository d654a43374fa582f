"""NYUv2 in the array format of MTAN, read from tiny files."""

import numpy as np
import pytest
import torch

from excessmtl.lab.data.base import DataNotFoundError
from excessmtl.lab.data.nyuv2 import load
from tiny_data import SCENE, write_nyuv2

HEIGHT, WIDTH = SCENE
STORED = {"depth": "depth", "normals": "normal", "segmentation": "label"}


@pytest.fixture
def folder(tmp_path):
    """NYUv2, whose pictures carry their number in a corner."""
    root = write_nyuv2(tmp_path, train=12, test=3)
    for path in root.glob("*/image/*.npy"):
        image = np.load(path)
        image[0, 0, 2] = int(path.stem) / 255
        np.save(path, image)
    return root


def numbers(split):
    return split.inputs[:, 2, 0, 0].tolist()


def test_scenes_are_read_in_order_and_a_tenth_is_held_out(folder):
    bench = load(folder)
    assert numbers(bench.train) + numbers(bench.validation) == [*range(9), 10, 11, 9]
    assert numbers(bench.test) == [0, 1, 2]
    assert bench.source == "NYUv2, 12 + 3 scenes"
    assert numbers(load(folder, validation=0.0).train) == list(range(12))
    assert len(load(folder, validation=0.5).validation.targets["depth"]) == 6


def test_arrays_arrive_channels_first_and_unchanged(tmp_path):
    root = write_nyuv2(tmp_path)
    bench = load(root)
    for name, target in bench.test.targets.items():
        stored = np.load(root / "val" / STORED[name] / "1.npy")
        np.testing.assert_allclose(target[1], stored if stored.ndim == 2 else stored.transpose(2, 0, 1), rtol=1e-6)
    image = np.load(root / "val" / "image" / "1.npy").transpose(2, 0, 1)
    np.testing.assert_allclose(bench.test.inputs[1] / 255, image, atol=0.5 / 255 + 1e-6)
    images, targets = bench.augment(bench.prepare(bench.train.inputs), bench.train.targets, torch.Generator())
    assert images.shape == bench.train.inputs.shape
    assert {name: t.shape for name, t in targets.items()} == {n: t.shape for n, t in bench.train.targets.items()}
    assert load(root, augment=False).augment is None


def test_recipe_and_network_are_the_papers(tmp_path):
    bench = load(write_nyuv2(tmp_path))
    recipe = bench.recipe
    assert (recipe.learning_rate, recipe.weight_decay, recipe.batch_size, recipe.epochs) == (1e-4, 1e-3, 2, 200)
    with torch.device("meta"):
        modules = [bench.build_trunk(), *(bench.build_head(task) for task in bench.tasks)]
    assert [sum(p.numel() for p in module.parameters()) for module in modules[1:]] == [37_773, 36_993, 37_123]
    assert len(modules[0].encoder) == 4


def test_missing_files_and_wrong_options_are_named(tmp_path):
    rooms = write_nyuv2(tmp_path)
    with pytest.raises(ValueError, match="levels is 5, but scenes of 24 x 32 pixels cannot be halved that often"):
        load(rooms, levels=5)
    for share in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"validation is {share}"):
            load(rooms, validation=share)
    (rooms / "train" / "label" / "3.npy").unlink()
    with pytest.raises(DataNotFoundError, match=r"label.3\.npy is missing: .* image, label, depth, normal"):
        load(rooms)


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        ("depth", np.ones((HEIGHT, WIDTH)), r"has shape \(24, 32\), expected 24 x 32 x 1"),
        ("label", np.ones((HEIGHT, WIDTH - 1)), r"has shape \(24, 31\), expected 24 x 32"),
        ("image", np.full((HEIGHT, WIDTH, 3), 200.0), "values from 200 to 200, expected 0 to 1"),
        ("label", np.full((HEIGHT, WIDTH), 13), "values from 13 to 13, expected -1 to 12"),
        ("depth", np.full((HEIGHT, WIDTH, 1), np.nan), "values from nan"),
        ("normal", np.array([{"a": 1}], dtype=object), "not an array of numbers"),
    ],
)
def test_a_wrong_file_is_named(folder, kind, array, message):
    np.save(folder / "train" / kind / "3.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message) as error:
        load(folder)
    assert str(folder / "train" / kind / "3.npy") in str(error.value)
