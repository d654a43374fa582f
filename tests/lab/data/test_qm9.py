"""QM9, read from tiny files in the published format."""

import pytest
import torch

from excessmtl.lab.data import qm9
from excessmtl.lab.data.base import DataNotFoundError
from excessmtl.lab.data.networks import MoleculeNet
from tiny_data import splits, write_qm9


def test_molecules_are_tables_of_atoms(tmp_path):
    bench = qm9.load(write_qm9(tmp_path))
    assert len(bench.tasks) == 15
    assert [len(split.inputs) for split in splits(bench)] == [48, 6, 6]
    atoms, energy = bench.train.inputs, bench.train.targets["energy"]
    counts = (atoms[..., 0] > 0).sum(1)
    assert atoms.shape == (48, 8, 4)
    assert (counts.min(), counts.max()) == (3, 8)
    torch.testing.assert_close(atoms[:, 1, 1], torch.full((48,), 1.1))
    assert torch.corrcoef(torch.stack((counts.float(), energy[:, 0])))[0, 1] > 0.99
    assert energy.mean().item() == pytest.approx(0, abs=1e-5)
    assert len(qm9.load(tmp_path / "qm9", molecules=30).train.inputs) == 24


def test_turning_moving_and_renumbering_a_molecule_changes_nothing():
    torch.manual_seed(0)
    net, atoms = MoleculeNet(16), torch.randn(5, 7, 4)
    atoms[..., 0] = torch.randint(1, 6, (5, 7))
    atoms[2, 4:] = 0
    rotation = torch.linalg.qr(torch.randn(3, 3))[0]
    moved = atoms.clone()
    moved[..., 1:] = torch.where(atoms[..., :1] > 0, atoms[..., 1:] @ rotation + 3, 0)
    padded = torch.cat((moved, torch.zeros(5, 2, 4)), 1)[:, torch.randperm(9)]
    torch.testing.assert_close(net(padded), net(atoms), atol=1e-4, rtol=1e-4)
    atoms[0, 0, 1] += 0.5
    assert not torch.allclose(net(padded)[0], net(atoms)[0], atol=1e-3)


def test_wrong_tables_of_molecules_are_named(tmp_path):
    folder = write_qm9(tmp_path)
    with pytest.raises(ValueError, match="molecules must be from 20 to 60, found 90"):
        qm9.load(folder, molecules=90)
    (folder / "qm9_part2.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="does not hold the tables of qm9pack"):
        qm9.load(folder)
    (folder / "qm9_part2.csv").unlink()
    with pytest.raises(DataNotFoundError, match=r"qm9_part2\.csv does not exist"):
        qm9.load(folder)
