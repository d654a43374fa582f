from pathlib import Path

import numpy as np
import torch
from scipy.io import savemat

from excessmtl.lab.data.base import Benchmark, registry
from excessmtl.lab.data.sarcos import load


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(3, 2, (count, 28))


def total(bench: Benchmark) -> list[int]:
    return [split.length("joint_1") for split in (bench.train, bench.validation, bench.test)]


def test_a_single_file_is_split(tmp_path: Path) -> None:
    savemat(tmp_path / "any.mat", {"sarcos_inv_test": rows(200), "note": np.zeros((3, 3))})
    bench = registry()["sarcos"].load(tmp_path / "any.mat")
    assert total(bench) == [144, 16, 40]
    assert [task.name for task in bench.tasks] == [f"joint_{i}" for i in range(1, 8)]
    assert bench.noisy_tasks == ("joint_1", "joint_2")
    parts = [split.inputs for split in (bench.train, bench.validation, bench.test)]
    assert all(isinstance(part, torch.Tensor) for part in parts)
    assert len(torch.cat(parts).unique(dim=0)) == 200  # type: ignore[arg-type]


def test_training_rows_are_standardised_and_targets_stay_with_their_inputs(tmp_path: Path) -> None:
    table = rows(300)
    table[:, 21:] = 5 * table[:, :7] - 1
    savemat(tmp_path / "any.mat", {"x": table})
    bench = load(tmp_path / "any.mat")
    for split in (bench.train, bench.validation, bench.test):
        assert isinstance(split.inputs, torch.Tensor)
        for joint in range(7):
            torch.testing.assert_close(split.targets[f"joint_{joint + 1}"], split.inputs[:, joint : joint + 1])
    assert isinstance(bench.train.inputs, torch.Tensor)
    torch.testing.assert_close(bench.train.inputs.mean(0), torch.zeros(21), atol=1e-5, rtol=0)
    torch.testing.assert_close(bench.train.inputs.std(0, correction=0), torch.ones(21), atol=1e-4, rtol=0)


def test_official_files_keep_their_test_rows_out_of_training(tmp_path: Path) -> None:
    train, test = rows(100), rows(50, seed=1)
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": np.concatenate([train, test[:30]])})
    savemat(tmp_path / "sarcos_inv_test.mat", {"sarcos_inv_test": test})
    bench = load(tmp_path)
    assert total(bench) == [90, 10, 50]
    assert "30 training rows that are test rows left out" in bench.source


def test_the_training_table_is_preferred(tmp_path: Path) -> None:
    savemat(tmp_path / "both.mat", {"sarcos_inv_test": rows(50), "sarcos_inv": rows(100)})
    assert sum(total(load(tmp_path / "both.mat"))) == 100
