"""SARCOS: the torques of a robot arm's seven joints from their positions, velocities and accelerations."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, DataNotFoundError, benchmark
from excessmtl.lab.data.simulated_arm import INPUTS, JOINTS, arm_benchmark
from excessmtl.lab.schema import explained

Table = npt.NDArray[np.float64]
_TRAIN, _TEST = "sarcos_inv", "sarcos_inv_test"


@benchmark("sarcos", "inverse dynamics of a robot arm, 21 inputs, 7 torques", "simulated-arm")
def load(data: Path | None, *, split_seed: int = 0) -> Benchmark:
    """Seven regression tasks on the same inputs.

    Args:
        data: a folder with `sarcos_inv.mat` and `sarcos_inv_test.mat`, or one of the two files.
        split_seed: decides which tenth of the training rows is for validation and, of a single file, which
            fifth of its rows is for test.

    The two official files are said to share rows. Where they do, the shared rows are left out of the training
    set, otherwise memorising would be rewarded.
    """
    path = sources.find("sarcos", data)
    rng = np.random.default_rng((split_seed, *b"sarcos"))
    if path.is_dir():
        test = _read(path / f"{_TEST}.mat")
        official = _read(path / f"{_TRAIN}.mat")
        known = {row.tobytes() for row in test}
        rest = official[[row.tobytes() not in known for row in official]]  # shared to the last digit
        source = f"SARCOS, official files, {len(official) - len(rest):,} training rows that are test rows left out"
    else:
        rows = rng.permutation(_read(path))
        test, rest = np.split(rows, [len(rows) // 5])
        source = f"SARCOS, {path.name} alone, split 80/20"
    if len(test) < 2 or len(rest) < 20:
        raise ValueError(f"{path} leaves {len(rest)} rows to train and {len(test)} to test on; that is too few.")
    validation, train = np.split(rng.permutation(rest), [len(rest) // 10])
    parts = [torch.from_numpy(part) for part in (train, validation, test)]
    return arm_benchmark(
        "sarcos",
        f"{source}, {len(train):,} + {len(validation):,} + {len(test):,} rows",
        [part[:, :INPUTS] for part in parts],
        [part[:, INPUTS:] for part in parts],
    )


def _read(path: Path) -> Table:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    if not path.is_file():
        raise DataNotFoundError(f"{path} does not exist: --data must name a folder with both .mat files or one.")
    broken = (ValueError, TypeError, IndexError, OSError, EOFError, NotImplementedError, MatReadError)
    with explained(f"{path} cannot be read as a .mat file up to version 7.2", "fetch it again", *broken):
        content = loadmat(path)
    width = INPUTS + JOINTS
    tables = {key: value for key, value in content.items() if np.ndim(value) == 2 and value.shape[1] == width}
    if _TRAIN in tables:
        tables = {_TRAIN: tables[_TRAIN]}
    if len(tables) != 1:
        held = ", ".join(key for key in content if not key.startswith("__")) or "nothing"
        raise ValueError(f"{path} holds {held}; expected exactly one table with {width} columns, found {len(tables)}.")
    table = np.asarray(next(iter(tables.values())), np.float64)
    if not np.isfinite(table).all():
        raise ValueError(f"{path} holds numbers that are not finite; fetch it again.")
    return table
