from pathlib import Path

import pytest
import torch
from PIL import Image

import excessmtl.lab.data.office_home  # noqa: F401
from excessmtl.lab.data.base import Benchmark, DataNotFoundError, registry


def make_tree(root: Path, domains: tuple[str, ...] = ("Art", "Product", "Real World"), count: int = 10) -> Path:
    for domain in domains:
        for name in ("apple", "bed", "cup"):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (40, 50), (9 * number, 0, 0)).save(folder / f"{number}.png")
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def load_office_home(data: Path | None, **options: int) -> Benchmark:
    entry = registry()["office-home"]
    assert entry.stand_in == "digit-domains"
    return entry.load(data, 0, **options)


def test_office_home_makes_tasks_of_the_domains(tree: Path) -> None:
    bench = load_office_home(tree)
    assert [(task.name, task.outputs) for task in bench.tasks] == [
        ("Art", 3),
        ("Product", 3),
        ("Real_World", 3),
    ]
    assert bench.noisy_tasks == ("Product",)
    assert bench.source == "tree: 90 pictures, 3 domains, 3 classes, 64 px"
    assert isinstance(bench.train.inputs, dict)
    prepared = bench.prepare(bench.train.inputs["Art"][:2])
    black = bench.prepare(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))[0, :, 0, 0]
    torch.testing.assert_close(black, torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))
    assert bench.build_head(bench.tasks[0])(bench.build_trunk()(prepared)).shape == (2, 3)


@pytest.mark.parametrize(("domains", "noisy"), [(("art", "cartoon", "photo"), "cartoon"), (("a", "b", "c"), "b")])
def test_the_noisy_domain_of_other_trees(tmp_path: Path, domains: tuple[str, ...], noisy: str) -> None:
    assert load_office_home(make_tree(tmp_path / "other", domains, 3)).noisy_tasks == (noisy,)


def test_office_home_without_data_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"Office-Home from its authors.*stand-in `digit-domains`"):
        load_office_home(None)
    with pytest.raises(DataNotFoundError, match="does not exist"):
        load_office_home(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"size must be .* got 8"):
        load_office_home(tmp_path, size=8)
