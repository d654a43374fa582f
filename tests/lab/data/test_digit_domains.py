import pytest
import torch
from torch.nn import functional as F

from excessmtl.lab.data.base import registry
from excessmtl.lab.data.digit_domains import STYLES, load
from excessmtl.lab.data.digits import load_digits
from tiny_data import splits


def test_four_tasks_with_inputs_of_their_own():
    bench = registry()["digit-domains"].load(0)
    assert [task.name for task in bench.tasks] == list(STYLES)
    assert set(bench.noisy_tasks) < set(STYLES)
    for name in STYLES:
        assert [split.length(name) for split in splits(bench)] == [900, 100, 1000]
        for split in splits(bench):
            assert split.inputs[name].shape == (split.length(name), 28, 28)
            assert split.inputs[name].dtype == torch.uint8
            assert split.targets[name].bincount().tolist() == [split.length(name) // 10] * 10


def test_no_digit_is_used_by_two_domains():
    bench = load(0)
    plain = bench.train.inputs["plain"]
    train, _ = load_digits()
    assert torch.equal(plain, train.images[100:1000])
    for number, name in enumerate(STYLES):
        expected = train.labels[1000 * number : 1000 * (number + 1)]
        assert torch.equal(torch.cat([bench.validation.targets[name], bench.train.targets[name]]), expected)


def test_styles_differ_and_fill_the_range_of_pixels():
    test = load(0).test.inputs
    means = {name: images.float().mean().item() for name, images in test.items()}
    assert means["shaded"] > 1.5 * means["outline"] > 1.5 * means["plain"]
    for images in test.values():
        assert images.amin() < 40
        assert images.amax() > 200


def test_turned_digits_lie_on_their_side():
    """Turning the mean upright one back by a quarter has to match the turned one better than no turning."""
    test = load(0).test.inputs
    seven = load(0).test.targets["plain"] == 7
    upright, turned = (test[name][seven].float().mean(0).flatten() for name in ("plain", "turned"))
    quarter = [torch.rot90(upright.view(28, 28), turns).flatten() for turns in range(4)]
    match = [float(F.cosine_similarity(turned, picture, dim=0)) for picture in quarter]
    assert match.index(max(match)) in (1, 3)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="digits_per_domain must be from 20 to 1000, got 2000"):
        load(0, digits_per_domain=2000)
    assert load(0, digits_per_domain=100).train.length("turned") == 90
