import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from excessmtl.lab.data import office_home
from excessmtl.lab.data.office_home import load
from tiny_data import colour, splits, write_archive, write_image_tree


def pack(root, archive):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return write_archive(archive, {f"./tree/{path.relative_to(root)}": path.read_bytes() for path in files})


@pytest.fixture
def tree(tmp_path):
    return write_image_tree(tmp_path)


def test_every_picture_is_there_once_with_its_label(tree):
    bench = load(tree, size=32)
    assert [(task.name, task.outputs) for task in bench.tasks] == [("Art", 3), ("Product", 3), ("Real_World", 3)]
    assert bench.noisy_tasks == ("Product",)
    assert bench.source == "tree: 90 pictures, 3 domains, 3 classes, 32 px"
    for d, task in enumerate(bench.tasks):
        assert [split.length(task.name) for split in splits(bench)] == [18, 6, 6]
        seen = set()
        for split in splits(bench):
            images, labels = split.inputs[task.name], split.targets[task.name]
            assert images.shape == (len(labels), 3, 32, 32)
            assert labels.bincount().tolist() == [len(labels) // 3] * 3
            seen |= {(tuple(image[:, 5, 7].tolist()), int(label)) for image, label in zip(images, labels, strict=True)}
        assert seen == {(colour(d, c, n), c) for c in range(3) for n in range(10)}
    black = bench.prepare(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))[0, :, 0, 0]
    torch.testing.assert_close(black, torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))


@pytest.mark.parametrize("name", ["tree.zip", "tree.tar.xz"])
def test_an_archive_gives_what_its_folder_gives(tree, tmp_path, name):
    folder, archive = load(tree, size=32), load(pack(tree, tmp_path / name), size=32)
    assert folder.tasks == archive.tasks
    for one, other in zip(splits(folder), splits(archive), strict=True):
        for task in folder.tasks:
            assert torch.equal(one.inputs[task.name], other.inputs[task.name])
            assert torch.equal(one.targets[task.name], other.targets[task.name])


def test_the_tree_is_decoded_once_and_its_file_does_not_change_with_the_tensors(tree, monkeypatch):
    first = load(tree, size=32).train.inputs["Product"]
    before = first.clone()
    first.zero_()
    monkeypatch.setattr(office_home, "decode", lambda *_: pytest.fail("decoded again"))
    assert torch.equal(load(tree, size=32).train.inputs["Product"], before)


def test_a_changed_picture_a_size_and_a_split_are_decoded_anew(tree, cache):
    load(tree, size=32)
    Image.new("RGB", (9, 9), (255, 255, 255)).save(tree / "Art" / "bed" / "3.png")
    os.utime(tree / "Art" / "bed" / "3.png", ns=(1, 1))
    changed = load(tree, size=32)
    assert max(int(split.inputs["Art"].amin((1, 2, 3)).max()) for split in splits(changed)) == 255
    assert not torch.equal(changed.train.inputs["Art"], load(tree, size=32, split_seed=1).train.inputs["Art"])
    assert load(tree, size=40).train.inputs["Art"].shape[-1] == 40
    assert len(list(cache.rglob("*.npy"))) == 4


def test_a_grey_and_a_transparent_picture_become_rgb(tree):
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save(tree / "Art" / "cup" / "0.png")
    Image.new("RGBA", (8, 8), (1, 2, 3, 4)).save(tree / "Art" / "cup" / "1.png")
    assert load(tree, size=32).train.inputs["Art"].shape[1] == 3


def test_an_unreadable_picture_is_named_and_nothing_is_kept(tree, cache):
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "JPEG")
    (tree / "Product" / "cup" / "4.jpg").write_bytes(buffer.getvalue()[:-300])
    with pytest.raises(ValueError, match=r"picture 'Product/cup/4\.jpg' cannot be read"):
        load(tree)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_wrong_trees_are_explained(tree, tmp_path):
    with pytest.raises(ValueError, match=r"size must be .* got 8"):
        load(tree, size=8)
    with pytest.raises(ValueError, match=r"'apple/0\.png' is out of place"):
        load(tree / "Art")
    with pytest.raises(ValueError, match="neither a folder nor"):
        load(tree / "ImageInfo.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds 0 domains"):
        load(tmp_path / "empty")
    for path in (tree / "Product" / "bed").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="domain 'Product' has 0 pictures of class 'bed'"):
        load(tree)
    write_image_tree(tree / "more")
    with pytest.raises(ValueError, match="different depths"):
        load(tree)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("kind", ["pipe", "device", "broken link"])
def test_what_is_not_a_plain_file_is_refused_and_not_read(tree, kind):
    odd = tree / "Art" / "cup" / "odd.png"
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero" if kind == "device" else tree / "nowhere")
    with pytest.raises(ValueError, match=r"odd\.png is not a plain file"):
        load(tree)


@pytest.mark.parametrize("links", [{"Art/back": "."}, {"Art/x": "Product", "Product/y": "Art"}])
def test_links_that_lead_back_are_refused_at_once(tree, links):
    for name, target in links.items():
        (tree / name).symlink_to(tree / target)
    with pytest.raises(ValueError, match="lies too deep, perhaps by a link that leads back; pictures must lie at"):
        load(tree)


def test_links_to_other_folders_are_followed(tree, tmp_path):
    (tree / "Art" / "cup").rename(tmp_path / "cups")
    (tree / "Art" / "cup").symlink_to(tmp_path / "cups")
    (tmp_path / "link").symlink_to(tree)
    assert [task.outputs for task in load(tmp_path / "link").tasks] == [3, 3, 3]


@pytest.mark.parametrize(("domains", "noisy"), [(("art", "cartoon", "photo"), "cartoon"), (("a", "b", "c"), "b")])
def test_the_noisy_domain_of_other_trees(tmp_path, domains, noisy):
    assert load(write_image_tree(tmp_path, domains, 3)).noisy_tasks == (noisy,)
