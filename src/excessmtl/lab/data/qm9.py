"""QM9: fifteen properties of small molecules from the places of their atoms (not in the paper)."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, DataNotFoundError, Recipe, Split, benchmark, columns, standardise
from excessmtl.lab.data.kinds import regression
from excessmtl.lab.data.networks import ELEMENTS, MoleculeNet
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.schema import explained

FILES = ("qm9_part1.csv", "qm9_part2.csv", "qm9_part3.csv")
PROPERTIES = {
    "rotation_a": "RotA_GHz",
    "rotation_b": "RotB_GHz",
    "rotation_c": "RotC_GHz",
    "dipole": "Dipole_debye",
    "polarizability": "Polarizability_bohr3",
    "homo": "HOMO_au",
    "lumo": "LUMO_au",
    "gap": "HOMO_LUMO_gap_au",
    "extent": "R2_bohr2",
    "vibration": "ZPVE_au",
    "energy_0k": "InternalEnergy_0K_au",
    "energy": "InternalEnergy_298K_au",
    "enthalpy": "Enthalphy_298K_au",
    "free_energy": "GibbsFreeEnergy_298K_au",
    "heat_capacity": "Heatcapacity_Cv_cal_mol_K",
}
"""Task -> column of the files."""
_LOGARITHMS = [place for place, task in enumerate(PROPERTIES) if task.startswith("rotation")]
"""A few molecules, nearly straight lines, rotate a thousand times faster than the others: log(1 + GHz)."""
_WIDTH = 64
_HELD_OUT = 10_000
"""Molecules for validation, and for test, as in the literature; a tenth each where there are fewer than 100,000."""


@benchmark("qm9", "15 properties of 130,831 molecules from the places of their atoms")
def load(data: Path | None, *, split_seed: int = 0, molecules: int | None = None) -> Benchmark:
    """Fifteen regression tasks on the same molecules.

    Args:
        data: the folder with the files of qm9pack: `qm9_part1.csv`, `qm9_part2.csv` and `qm9_part3.csv`.
        split_seed: decides which molecules are for training, validation and test.
        molecules: take so many, drawn at random; None: all.

    A molecule is a table of atoms: the number of its element in H, C, N, O, F (from 1; 0: no atom) and x, y, z in
    angstroms.
    """
    folder = sources.find("qm9", data)
    missing = next((folder / name for name in FILES if not (folder / name).is_file()), None)
    if missing is not None:
        raise DataNotFoundError(f"{missing} does not exist: --data must name the folder with {', '.join(FILES)}.")
    atoms, values = read(folder, tuple((folder / name).stat().st_mtime_ns for name in FILES))
    if molecules is not None and not 20 <= molecules <= len(atoms):
        raise ValueError(f"molecules must be from 20 to {len(atoms)}, found {molecules!r}")
    order = np.random.default_rng((split_seed, *b"qm9")).permutation(len(atoms))[:molecules]
    held_out = _HELD_OUT if len(order) >= 10 * _HELD_OUT else len(order) // 10
    test, validation, train = (torch.from_numpy(rows) for rows in np.split(order, [held_out, 2 * held_out]))
    parts = (train, validation, test)
    targets = standardise(*(values[rows] for rows in parts))
    return Benchmark(
        "qm9",
        f"QM9, {len(train):,} + {len(validation):,} + {len(test):,} molecules",
        tuple(Task(name, 1, regression) for name in PROPERTIES),
        *(Split(atoms[rows], columns(PROPERTIES, own)) for rows, own in zip(parts, targets, strict=True)),
        recipe=Recipe(learning_rate=1e-3, weight_decay=0.0, batch_size=120, epochs=100),
        noisy_tasks=("dipole", "gap", "heat_capacity"),
        build_trunk=lambda: MoleculeNet(_WIDTH),
        build_head=lambda task: nn.Linear(_WIDTH, task.outputs),
    )


@lru_cache(maxsize=1)
def read(folder: Path, changed: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    """Atoms [molecules, most atoms, 4] and properties [molecules, 15]; `changed` is when the files were."""
    wanted = ["Elements", "XYZ_Ang", *PROPERTIES.values()]
    damage = (ValueError, KeyError, AttributeError, OSError)
    with explained(f"{folder} does not hold the tables of qm9pack", "run `excessmtl data get qm9`", *damage):
        frame = pd.concat([pd.read_csv(folder / name, usecols=wanted) for name in FILES], ignore_index=True)
        values = torch.from_numpy(frame[list(PROPERTIES.values())].to_numpy(np.float64))
        tables = [_atoms(*row) for row in zip(frame["Elements"], frame["XYZ_Ang"], strict=True)]
    if not values.isfinite().all() or len(tables) < 20:
        raise ValueError(f"{folder} holds {len(tables)} molecules, or properties that are not numbers; fetch it again.")
    values[:, _LOGARITHMS] = values[:, _LOGARITHMS].log1p()
    atoms = np.zeros((len(tables), max(map(len, tables)), 4), np.float32)
    for row, table in zip(atoms, tables, strict=True):
        row[: len(table)] = table
    return torch.from_numpy(atoms), values


def _atoms(elements: str, places: str) -> npt.NDArray[np.float32]:
    """From "['C','H']" and "[[0.,0.,0.],[1.1,0.,0.]]": the number of the element, x, y, z of every atom."""
    numbers = [ELEMENTS.index(element.strip(" '\"")) + 1 for element in elements.strip("[]").split(",")]
    coordinates = np.array(places.replace("[", "").replace("]", "").split(","), np.float32)
    return np.column_stack([np.array(numbers, np.float32), coordinates.reshape(len(numbers), 3)])
