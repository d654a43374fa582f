"""Benchmarks of other papers, read from tiny files in the published formats."""

import pytest
import torch
from PIL import Image

from excessmtl.lab.data import celeba, qm9
from excessmtl.lab.data.base import DataNotFoundError
from excessmtl.lab.data.networks import MoleculeNet
from tiny_data import ATTRIBUTES, write_celeba, write_qm9


def test_faces_have_the_official_split_and_their_own_attributes(tmp_path):
    folder = write_celeba(tmp_path)
    bench = celeba.load(folder, size=32)
    assert [task.name for task in bench.tasks] == list(ATTRIBUTES)
    assert bench.noisy_tasks == ("Young",)
    assert [len(split.inputs) for split in (bench.train, bench.validation, bench.test)] == [18, 6, 6]
    for split in (bench.train, bench.validation, bench.test):
        colours = split.inputs.float().mean((2, 3)) > 120  # a colour per attribute
        for place, name in enumerate(ATTRIBUTES):
            assert torch.equal(split.targets[name], colours[:, place].float())


def test_faces_are_decoded_once(tmp_path, cache):
    folder = write_celeba(tmp_path)
    first = celeba.load(folder, size=32)
    (stored,) = (cache / "celeba-pictures").iterdir()
    assert torch.equal(first.train.inputs, celeba.load(folder, size=32).train.inputs)
    assert [*(cache / "celeba-pictures").iterdir()] == [stored]
    Image.new("RGB", (40, 40)).save(folder / "img_align_celeba" / "000001.jpg")
    assert not torch.equal(first.train.inputs[0], celeba.load(folder, size=32).train.inputs[0])


def test_a_shuffled_partition_is_followed(tmp_path):
    folder = write_celeba(tmp_path)
    lines = [f"{number + 1:06d}.jpg {number % 3}" for number in range(30)]
    (folder / "list_eval_partition.txt").write_text("\n".join(lines))
    bench = celeba.load(folder, size=32)
    assert [len(split.inputs) for split in (bench.train, bench.validation, bench.test)] == [10, 10, 10]
    assert torch.equal(bench.test.targets["Bald"], (bench.test.inputs[:, 0].float().mean((1, 2)) > 120).float())


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("list_attr_celeba.txt", None, DataNotFoundError, "list_attr_celeba.txt is missing"),
        ("list_attr_celeba.txt", "2\na b\n1.jpg 1 -1\n", ValueError, "announces 2 pictures and 2 attributes"),
        ("list_attr_celeba.txt", "some text", ValueError, "is not the list of CelebA's attributes"),
        ("list_eval_partition.txt", "000001.jpg 0\n", ValueError, "has None for 000002.jpg"),
        ("img_align_celeba/000007.jpg", None, DataNotFoundError, "000007.jpg is missing"),
        ("img_align_celeba/000007.jpg", "no picture", ValueError, "'000007.jpg' cannot be read"),
    ],
)
def test_wrong_files_of_faces_are_named(tmp_path, name, content, error, message):
    folder = write_celeba(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(error, match=message):
        celeba.load(folder, size=32)


def test_molecules_are_tables_of_atoms(tmp_path):
    bench = qm9.load(write_qm9(tmp_path))
    assert len(bench.tasks) == 15
    assert [len(split.inputs) for split in (bench.train, bench.validation, bench.test)] == [48, 6, 6]
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
