import numpy as np
import torch
from scipy.io import savemat

from excessmtl.lab.data.base import registry
from excessmtl.lab.data.sarcos import load
from tiny_data import splits


def rows(count, seed=0):
    return np.random.default_rng(seed).normal(3, 2, (count, 28))


def total(bench):
    return [split.length("joint_1") for split in splits(bench)]


def test_a_single_file_is_split(tmp_path):
    table = rows(200)
    table[:, 21:] = 5 * table[:, :7] - 1
    savemat(tmp_path / "any.mat", {"sarcos_inv_test": table, "note": np.zeros((3, 3))})
    bench = registry()["sarcos"].load(tmp_path / "any.mat")
    assert total(bench) == [144, 16, 40]
    assert [task.name for task in bench.tasks] == [f"joint_{i}" for i in range(1, 8)]
    assert bench.noisy_tasks == ("joint_1", "joint_2")
    assert len(torch.cat([split.inputs for split in splits(bench)]).unique(dim=0)) == 200
    for split in splits(bench):
        for joint in range(7):  # targets stay with their inputs
            torch.testing.assert_close(split.targets[f"joint_{joint + 1}"], split.inputs[:, joint : joint + 1])


def test_official_files_keep_their_test_rows_out_of_training(tmp_path):
    train, test = rows(100), rows(50, seed=1)
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": np.concatenate([train, test[:30]])})
    savemat(tmp_path / "sarcos_inv_test.mat", {"sarcos_inv_test": test})
    bench = load(tmp_path)
    assert total(bench) == [90, 10, 50]
    assert "30 training rows that are test rows left out" in bench.source


def test_the_training_table_is_preferred(tmp_path):
    savemat(tmp_path / "both.mat", {"sarcos_inv_test": rows(50), "sarcos_inv": rows(100)})
    assert sum(total(load(tmp_path / "both.mat"))) == 100
