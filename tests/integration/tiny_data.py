"""Files of a few kilobytes in the real formats, for benchmarks that read their data."""

from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

SCENE = (24, 32)


def write_sarcos(folder: Path) -> Path:
    """One table: 21 inputs and the 7 torques that follow from them."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(600, 21))
    torques = np.tanh(inputs @ rng.normal(size=(21, 7)) / 4)
    path = folder / "sarcos_inv_test.mat"
    savemat(path, {"sarcos_inv_test": np.concatenate([inputs, torques], axis=1)})
    return path


def write_image_tree(folder: Path) -> Path:
    """Two domains of three classes that differ in colour."""
    rng = np.random.default_rng(0)
    for domain, brightness in (("Art", 60), ("Product", 160)):
        for channel, name in enumerate(("apple", "bed", "cup")):
            place = folder / "tree" / domain / name
            place.mkdir(parents=True)
            for number in range(8):
                pixels = rng.integers(0, 60, (32, 36, 3)).astype(np.uint8)
                pixels[..., channel] += np.uint8(brightness)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder / "tree"


def write_nyuv2(folder: Path, train: int = 10, test: int = 4) -> Path:
    """MTAN's folders of arrays, with unknown labels, depths and normals along one edge."""
    rng = np.random.default_rng(0)
    height, width = SCENE
    for part, count in (("train", train), ("val", test)):
        for number in range(count):
            normal = rng.normal(size=(height, width, 3))
            arrays = {
                "image": rng.uniform(size=(height, width, 3)),
                "label": rng.integers(0, 13, SCENE).astype(np.float64),
                "depth": rng.uniform(1, 9, (height, width, 1)),
                "normal": normal / np.linalg.norm(normal, axis=-1, keepdims=True),
            }
            for kind, unknown in (("label", -1), ("depth", 0), ("normal", 0)):
                arrays[kind][0] = unknown
            for kind, array in arrays.items():
                place = folder / "nyuv2" / part / kind
                place.mkdir(parents=True, exist_ok=True)
                np.save(place / f"{number}.npy", array.astype(np.float32))
    return folder / "nyuv2"


def write_school(folder: Path, schools: int = 8) -> Path:
    """Schools of different sizes."""
    rng = np.random.default_rng(0)
    numbers = np.repeat(np.arange(schools), 12 + 5 * np.arange(schools))
    features = rng.normal(size=(len(numbers), 28))
    scores = features @ rng.normal(size=28) + numbers
    path = folder / "school.csv"
    np.savetxt(path, np.column_stack([features, scores, numbers]), delimiter=",")
    return path


WRITERS = {"sarcos": write_sarcos, "office-home": write_image_tree, "nyuv2": write_nyuv2, "school": write_school}
