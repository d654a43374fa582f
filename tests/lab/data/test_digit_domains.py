from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from excessmtl.lab.data.base import Split, registry
from excessmtl.lab.data.digit_domains import STYLES, load
from excessmtl.lab.data.digits import load_digits


def pictures(split: Split) -> dict[str, Tensor]:
    assert isinstance(split.inputs, dict)
    return split.inputs


def test_four_tasks_with_inputs_of_their_own() -> None:
    bench = registry()["digit-domains"].load(None, 0)
    assert [task.name for task in bench.tasks] == list(STYLES)
    assert set(bench.noisy_tasks) < set(STYLES)
    for name in STYLES:
        assert [bench.train.length(name), bench.validation.length(name), bench.test.length(name)] == [
            900,
            100,
            1000,
        ]
        for split in (bench.train, bench.validation, bench.test):
            assert pictures(split)[name].shape == (split.length(name), 28, 28)
            assert pictures(split)[name].dtype == torch.uint8
            assert split.targets[name].bincount().tolist() == [split.length(name) // 10] * 10


def test_no_digit_is_used_by_two_domains() -> None:
    bench = load(None, 0)
    plain = pictures(bench.train)["plain"]
    train, _ = load_digits()
    assert torch.equal(plain, train.images[100:1000])
    for number, name in enumerate(STYLES):
        expected = train.labels[1000 * number : 1000 * (number + 1)]
        assert torch.equal(torch.cat([bench.validation.targets[name], bench.train.targets[name]]), expected)


def test_styles_differ_and_fill_the_range_of_pixels() -> None:
    test = pictures(load(None, 0).test)
    means = {name: images.float().mean().item() for name, images in test.items()}
    assert means["shaded"] > 1.5 * means["outline"] > 1.5 * means["plain"]
    for images in test.values():
        assert images.amin() < 40
        assert images.amax() > 200


def test_turned_digits_lie_on_their_side() -> None:
    """Turning the mean upright one back by a quarter has to match the turned one better than no turning."""
    test = pictures(load(None, 0).test)
    seven = load(None, 0).test.targets["plain"] == 7
    upright, turned = (test[name][seven].float().mean(0).flatten() for name in ("plain", "turned"))
    quarter = [torch.rot90(upright.view(28, 28), turns).flatten() for turns in range(4)]
    match = [float(F.cosine_similarity(turned, picture, dim=0)) for picture in quarter]
    assert match.index(max(match)) in (1, 3)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads gain nothing on pictures this small and lose much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_short_training_beats_chance_on_every_style() -> None:
    torch.manual_seed(0)
    bench = load(None, 0)
    trunk = bench.build_trunk()
    heads = {task.name: bench.build_head(task) for task in bench.tasks}
    parameters = [*trunk.parameters(), *(p for head in heads.values() for p in head.parameters())]
    optimiser = torch.optim.Adam(parameters, 2e-3)
    for _ in range(5):
        for batch in torch.randperm(900).split(90):
            optimiser.zero_grad()
            for name, head in heads.items():
                output = head(trunk(bench.prepare(pictures(bench.train)[name][batch])))
                F.cross_entropy(output, bench.train.targets[name][batch]).backward()
            optimiser.step()
    for name, head in heads.items():
        with torch.no_grad():
            output = head(trunk(bench.prepare(pictures(bench.test)[name])))
        assert (output.argmax(1) == bench.test.targets[name]).float().mean() > 0.5, name


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="digits_per_domain must be from 20 to 1000, got 2000"):
        load(None, 0, digits_per_domain=2000)
    with pytest.raises(ValueError, match="leave --data out"):
        load(Path("somewhere"), 0)
    assert load(None, 0, digits_per_domain=100).train.length("turned") == 90


def test_sizes_types_and_balance() -> None:
    train, test = load_digits()
    assert (len(train), len(test)) == (4000, 1000)
    for digits in (train, test):
        assert digits.images.dtype == torch.uint8
        assert digits.images.shape == (len(digits), 28, 28)
        assert digits.labels.dtype == torch.int64
        assert digits.labels.bincount().tolist() == [len(digits) // 10] * 10


def test_no_digit_occurs_twice() -> None:
    images = torch.cat([part.images for part in load_digits()])
    assert len(images.flatten(1).unique(dim=0)) == 5000


def test_labels_belong_to_the_images() -> None:
    """The mean picture of each class, learnt on one part, recognises the other: a shifted order would not."""
    train, test = load_digits()
    flat, other = (part.images.flatten(1).float() for part in (train, test))
    means = torch.stack([flat[train.labels == digit].mean(0) for digit in range(10)])
    nearest = torch.cdist(other, means).argmin(1)
    assert (nearest == test.labels).float().mean() > 0.75
