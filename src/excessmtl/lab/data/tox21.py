"""Tox21: toxicity of molecules in twelve assays, a sixth of the labels missing (not in the paper)."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, shuffled
from excessmtl.lab.data.hashing import dampened, hashed_counts, substrings
from excessmtl.lab.data.kinds import rare_binary
from excessmtl.lab.data.networks import MLP
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.schema import explained

_FILE = "tox21.csv.gz"
_OTHERS = ("mol_id", "smiles")
_COLUMNS = 1024
_HIDDEN = 128
_NOISY = ("NR-AR", "NR-ER", "SR-ARE")


@benchmark("tox21", "12 toxicity assays of 8,014 molecules, 17 % of the labels missing")
def load(data: Path | None, *, split_seed: int = 0, features: str = "substrings") -> Benchmark:
    """A binary task per assay; missing labels are NaN.

    Args:
        data: `tox21.csv.gz`, or its folder: a column per assay, `mol_id`, `smiles`.
        split_seed: decides which molecules are for training (70 %), validation (15 %) and test (15 %).
        features: "substrings": hashed substrings of the SMILES, of up to five characters; "rdkit": Morgan fingerprints
            of radius 2, which need the package rdkit.
    """
    path = sources.find("tox21", data, _FILE)
    with explained(f"{path} cannot be read as a CSV file", "fetch it again", ValueError, EOFError, OSError):
        frame = pd.read_csv(path)
    names = [str(name) for name in frame.columns if name not in _OTHERS]
    if "smiles" not in frame or not names:
        raise ValueError(f"{path} has the columns {list(frame.columns)}; expected assays, mol_id and smiles.")
    labels = frame[names].to_numpy(np.float32, na_value=np.nan)
    if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        raise ValueError(f"{path} has other labels than 0, 1 and nothing in the columns {names}.")
    inputs = _inputs([str(text) for text in frame["smiles"]], features)
    whole = Split(inputs, dict(zip(names, torch.from_numpy(labels).T, strict=True)))
    parts = shuffled(len(frame), (0.7, 0.15), split_seed, *b"tox21")
    return Benchmark(
        "tox21",
        f"Tox21, {len(frame):,} molecules as {features}, {np.isnan(labels).mean():.0%} of the labels missing",
        tuple(Task(name, 1, rare_binary) for name in names),
        *(whole.rows(dict.fromkeys(names, rows)) for rows in parts),
        recipe=Recipe(learning_rate=1e-3, weight_decay=1e-4, batch_size=128, epochs=15),
        noisy_tasks=tuple(name for name in _NOISY if name in names),
        build_trunk=lambda: nn.Sequential(MLP(_COLUMNS, hidden=_HIDDEN, layers=2), nn.Dropout(0.3)),
        build_head=lambda task: nn.Linear(_HIDDEN, task.outputs),
        prepare=dampened,
    )


def _inputs(smiles: list[str], features: str) -> Tensor:
    if features == "substrings":
        return hashed_counts(map(substrings, smiles), _COLUMNS)
    if features != "rdkit":
        raise ValueError(f"features must be substrings or rdkit, found {features!r}")
    try:
        from rdkit import Chem
        from rdkit.Chem import rdFingerprintGenerator
    except ModuleNotFoundError as error:
        raise ValueError("features 'rdkit' needs the package rdkit; install it, or use 'substrings'") from error
    make = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=_COLUMNS)
    molecules = [Chem.MolFromSmiles(text) for text in smiles]
    if None in molecules:
        raise ValueError(f"RDKit cannot read {smiles[molecules.index(None)]!r}; use the option features=substrings")
    return torch.from_numpy(
        np.stack([make.GetCountFingerprintAsNumPy(molecule).clip(max=255) for molecule in molecules]).astype(np.uint8)
    )
