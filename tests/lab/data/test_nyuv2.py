from pathlib import Path

import numpy as np
import pytest
import torch

from excessmtl.lab.data.base import DataNotFoundError, registry
from excessmtl.lab.data.networks.segnet import SegNet
from excessmtl.lab.data.nyuv2 import load

HEIGHT, WIDTH = 32, 48


def scene(rng: np.random.Generator, number: int) -> dict[str, np.ndarray]:
    normal = rng.normal(size=(HEIGHT, WIDTH, 3))
    image = rng.uniform(size=(HEIGHT, WIDTH, 3))
    image[0, 0] = [1, 0, number / 255]
    return {
        "image": image,
        "label": rng.integers(-1, 13, (HEIGHT, WIDTH)).astype(np.float64),
        "depth": rng.uniform(0, 9, (HEIGHT, WIDTH, 1)).astype(np.float32),
        "normal": normal / np.linalg.norm(normal, axis=-1, keepdims=True),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("val", 3)):
        for i in range(count):
            for kind, array in scene(rng, i).items():
                (tmp_path / part / kind).mkdir(parents=True, exist_ok=True)
                np.save(tmp_path / part / kind / f"{i}.npy", array)
    return tmp_path


def numbers(inputs: object) -> list[int]:
    assert isinstance(inputs, torch.Tensor)
    return inputs[:, 2, 0, 0].tolist()


def test_scenes_are_read_in_order_and_a_tenth_is_held_out(folder: Path) -> None:
    bench = registry()["nyuv2"].load(folder, 0)
    assert numbers(bench.train.inputs) + numbers(bench.validation.inputs) == [*range(9), 10, 11, 9]
    assert numbers(bench.test.inputs) == [0, 1, 2]
    assert bench.source == "NYUv2, 12 + 3 scenes"
    assert numbers(load(folder, 0, validation=0.0).train.inputs) == list(range(12))
    assert len(load(folder, 0, validation=0.5).validation.targets["depth"]) == 6


def test_arrays_arrive_channels_first_and_unchanged(folder: Path) -> None:
    test = load(folder, 0).test
    for name, kind in (("depth", "depth"), ("normals", "normal")):
        stored = np.load(folder / "val" / kind / "1.npy").transpose(2, 0, 1)
        np.testing.assert_allclose(test.targets[name][1], stored, rtol=1e-6)
    np.testing.assert_array_equal(test.targets["segmentation"][1], np.load(folder / "val/label/1.npy"))
    image = np.load(folder / "val" / "image" / "1.npy").transpose(2, 0, 1)
    assert isinstance(test.inputs, torch.Tensor)
    np.testing.assert_allclose(test.inputs[1] / 255, image, atol=0.5 / 255 + 1e-6)


def test_recipe_and_network_are_the_papers(folder: Path) -> None:
    bench = load(folder, 0)
    recipe = bench.recipe
    assert (recipe.learning_rate, recipe.weight_decay, recipe.batch_size, recipe.epochs) == (1e-4, 1e-3, 2, 200)
    peers = load(folder, 0, levels=5)
    with torch.device("meta"):
        modules = [peers.build_trunk(), *(bench.build_head(task) for task in bench.tasks)]
        trunk = bench.build_trunk()
    sizes = [sum(p.numel() for p in module.parameters()) for module in modules]
    assert sizes == [24_943_296, 37_773, 36_993, 37_123]
    assert isinstance(trunk, SegNet)
    assert len(trunk.encoder) == 4
    assert bench.augment is not None
    assert load(folder, 0, augment=False).augment is None


def test_augmentation_takes_what_prepare_gives(folder: Path) -> None:
    bench = load(folder, 0)
    assert bench.augment is not None
    assert isinstance(bench.train.inputs, torch.Tensor)
    images, targets = bench.augment(bench.prepare(bench.train.inputs), bench.train.targets, torch.Generator())
    assert images.shape == bench.train.inputs.shape
    assert {name: t.shape for name, t in targets.items()} == {n: t.shape for n, t in bench.train.targets.items()}


def test_without_data_the_stand_in_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EXCESSMTL_DATA", str(tmp_path / "nothing"))
    with pytest.raises(DataNotFoundError, match=r"MTAN.*synthetic-rooms"):
        load(None, 0)
    assert registry()["nyuv2"].stand_in == "synthetic-rooms"


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "train" / "depth" / "7.npy").unlink()
    with pytest.raises(DataNotFoundError, match=r"depth.7\.npy is missing"):
        load(folder, 0)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"train.image.0\.npy is missing"):
        load(tmp_path, 0)


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        ("depth", np.ones((HEIGHT, WIDTH)), r"has shape \(32, 48\), expected 32 x 48 x 1"),
        ("label", np.ones((HEIGHT, WIDTH - 1)), r"has shape \(32, 47\), expected 32 x 48"),
        ("image", np.full((HEIGHT, WIDTH, 3), 200.0), "values from 200 to 200, expected 0 to 1"),
        ("label", np.full((HEIGHT, WIDTH), 13), "values from 13 to 13, expected -1 to 12"),
        ("depth", np.full((HEIGHT, WIDTH, 1), np.nan), "values from nan"),
        ("normal", np.array([{"a": 1}], dtype=object), "not an array of numbers"),
    ],
)
def test_a_wrong_file_is_named(folder: Path, kind: str, array: np.ndarray, message: str) -> None:
    np.save(folder / "train" / kind / "3.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message) as error:
        load(folder, 0)
    assert str(folder / "train" / kind / "3.npy") in str(error.value)


def test_a_truncated_file_is_named(folder: Path) -> None:
    path = folder / "val" / "normal" / "2.npy"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"normal.2\.npy is not an array"):
        load(folder, 0)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_the_held_out_share_is_checked(folder: Path, share: float) -> None:
    with pytest.raises(ValueError, match=f"validation is {share}"):
        load(folder, 0, validation=share)
