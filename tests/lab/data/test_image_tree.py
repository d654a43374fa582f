import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from excessmtl.lab.data import image_tree, office_home
from excessmtl.lab.data.image_tree import PARTS, load_image_tree

CLASSES = ("apple", "bed", "cup")


def colour(domain: int, label: int, number: int) -> tuple[int, int, int]:
    return (60 * domain, 60 * label, 10 * number)


def make_tree(root: Path, domains: tuple[str, ...] = ("Art", "Product", "Real World"), count: int = 10) -> Path:
    for d, domain in enumerate(domains):
        for c, name in enumerate(CLASSES):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (40 + number, 50), colour(d, c, number)).save(folder / f"{number}.png")
    (root / "ImageInfo.csv").write_text("not a picture")
    (root / domains[0] / CLASSES[0] / "._0.png").write_text("a resource fork")
    return root


def pack(root: Path, archive: Path) -> Path:
    names = sorted(path for path in root.rglob("*") if path.is_file())
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for path in names:
                opened.write(path, f"tree/{path.relative_to(root)}")
    else:
        with tarfile.open(archive, "w:xz") as tar:
            for path in names:
                tar.add(path, f"./tree/{path.relative_to(root)}")
    return archive


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def test_every_picture_is_there_once_with_its_label(tree: Path) -> None:
    read = load_image_tree(tree, 32)
    assert read.domains == ("Art", "Product", "Real World")
    assert read.classes == CLASSES
    for d, domain in enumerate(read.domains):
        assert [len(read.labels[domain, part]) for part in PARTS] == [18, 6, 6]
        seen = set()
        for part in PARTS:
            images, labels = read.images[domain, part], read.labels[domain, part]
            assert images.shape == (len(labels), 3, 32, 32)
            assert labels.bincount().tolist() == [len(labels) // 3] * 3
            for image, label in zip(images, labels, strict=True):
                seen.add((tuple(image[:, 5, 7].tolist()), int(label)))
        assert seen == {(colour(d, c, n), c) for c in range(3) for n in range(10)}


@pytest.mark.parametrize("name", ["tree.zip", "tree.tar.xz"])
def test_an_archive_gives_what_its_folder_gives(tree: Path, tmp_path: Path, name: str) -> None:
    folder, archive = load_image_tree(tree, 32), load_image_tree(pack(tree, tmp_path / name), 32)
    assert folder.classes == archive.classes
    for key in folder.images:
        assert torch.equal(folder.images[key], archive.images[key])
        assert torch.equal(folder.labels[key], archive.labels[key])


def test_the_tree_is_decoded_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_image_tree(tree, 32)
    monkeypatch.setattr(image_tree, "decode", lambda *_: pytest.fail("decoded again"))
    again = load_image_tree(tree, 32)
    assert all(torch.equal(first.images[key], again.images[key]) for key in first.images)


def test_the_cache_file_does_not_change_with_the_tensors(tree: Path) -> None:
    load_image_tree(tree, 32).images["Art", "train"].zero_()
    assert load_image_tree(tree, 32).images["Art", "train"].sum() > 0


def test_a_changed_picture_a_size_and_a_split_are_decoded_anew(tree: Path, cache: Path) -> None:
    load_image_tree(tree, 32)
    Image.new("RGB", (9, 9), (255, 255, 255)).save(tree / "Art" / "bed" / "3.png")
    os.utime(tree / "Art" / "bed" / "3.png", ns=(1, 1))
    changed = load_image_tree(tree, 32)
    assert max(int(changed.images["Art", part].amin((1, 2, 3)).max()) for part in PARTS) == 255
    other = load_image_tree(tree, 32, split_seed=1)
    assert not torch.equal(changed.images["Art", "train"], other.images["Art", "train"])
    assert load_image_tree(tree, 16).images["Art", "train"].shape[-1] == 16
    assert len(list(cache.rglob("*.npy"))) == 4


def test_a_grey_and_a_transparent_picture_become_rgb(tree: Path) -> None:
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save(tree / "Art" / "cup" / "0.png")
    Image.new("RGBA", (8, 8), (1, 2, 3, 4)).save(tree / "Art" / "cup" / "1.png")
    assert load_image_tree(tree, 32).images["Art", "train"].shape[1] == 3


def test_an_unreadable_picture_is_named_and_nothing_is_kept(tree: Path, cache: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "JPEG")
    (tree / "Product" / "cup" / "4.jpg").write_bytes(buffer.getvalue()[:-300])
    with pytest.raises(ValueError, match=r"picture 'Product/cup/4\.jpg' cannot be read"):
        load_image_tree(tree, 32)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_class_missing_in_a_domain_is_named(tree: Path) -> None:
    for path in (tree / "Product" / "bed").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="domain 'Product' has 0 pictures of class 'bed'"):
        load_image_tree(tree, 32)


def test_wrong_layouts_are_explained(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'apple/0\.png' is out of place"):
        load_image_tree(tree / "Art", 32)
    with pytest.raises(ValueError, match="neither a folder nor"):
        load_image_tree(tree / "ImageInfo.csv", 32)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds 0 domains"):
        load_image_tree(tmp_path / "empty", 32)
    make_tree(tree / "more")
    with pytest.raises(ValueError, match="different depths"):
        load_image_tree(tree, 32)


def test_an_archive_with_an_escaping_member_is_refused(tree: Path, tmp_path: Path) -> None:
    archive = pack(tree, tmp_path / "tree.zip")
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("../../Art/apple/11.png", b"")
    with pytest.raises(ValueError, match="should not be trusted"):
        load_image_tree(archive, 32)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("kind", ["pipe", "device", "broken link"])
def test_what_is_not_a_plain_file_is_refused_and_not_read(tmp_path: Path, kind: str) -> None:
    make_tree(tmp_path)
    odd = next(path for path in tmp_path.rglob("*.png")).with_name("odd.png")
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero" if kind == "device" else tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"odd\.png is not a plain file"):
        load_image_tree(tmp_path, 32)


def test_links_that_lead_back_are_refused_at_once(tree: Path) -> None:
    for name in ("Art", "Product", "Real World"):
        (tree / name / "back").symlink_to(tree)
    with pytest.raises(ValueError, match=r"back is a link that leads back to .*tree, in which it lies; remove it"):
        load_image_tree(tree, 8)


def test_links_that_lead_to_each_other_are_refused_at_once(tree: Path) -> None:
    (tree / "Art" / "x").symlink_to(tree / "Product")
    (tree / "Product" / "y").symlink_to(tree / "Art")
    with pytest.raises(ValueError, match="is a link that leads back to"):
        load_image_tree(tree, 8)


def test_links_to_other_folders_are_followed(tree: Path, tmp_path: Path) -> None:
    (tree / "Art" / "cup").rename(tmp_path / "cups")
    (tree / "Art" / "cup").symlink_to(tmp_path / "cups")
    (tmp_path / "link").symlink_to(tree)
    assert load_image_tree(tmp_path / "link", 8).classes == CLASSES


def test_office_home_makes_tasks_of_the_domains(tree: Path) -> None:
    bench = office_home.load(tree, 0)
    assert [(task.name, task.outputs) for task in bench.tasks] == [("Art", 3), ("Product", 3), ("Real_World", 3)]
    assert bench.noisy_tasks == ("Product",)
    assert bench.source == "tree: 90 pictures, 3 domains, 3 classes, 64 px"
    black = bench.prepare(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))[0, :, 0, 0]
    torch.testing.assert_close(black, torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))
    with pytest.raises(ValueError, match=r"size must be .* got 8"):
        office_home.load(tree, 0, size=8)


@pytest.mark.parametrize(("domains", "noisy"), [(("art", "cartoon", "photo"), "cartoon"), (("a", "b", "c"), "b")])
def test_the_noisy_domain_of_other_trees(tmp_path: Path, domains: tuple[str, ...], noisy: str) -> None:
    assert office_home.load(make_tree(tmp_path / "other", domains, 3), 0).noisy_tasks == (noisy,)
