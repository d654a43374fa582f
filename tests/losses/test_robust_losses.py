"""The losses that follow the noise they see: equal to the plain ones where there is none, and right where there is."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from excessmtl.losses import RobustBCEWithLogits, RobustCrossEntropy, RobustMSELoss

LOGITS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
CLASSES = torch.randint(5, (12,), generator=torch.Generator().manual_seed(1))
SURE = 20.0 * F.one_hot(CLASSES, 5)
SOFT = torch.randn(12, 5, generator=torch.Generator().manual_seed(2)).softmax(1)
MAPS = torch.randn(3, 5, 2, 2, generator=torch.Generator().manual_seed(3))
MAP_CLASSES = torch.randint(5, (3, 2, 2), generator=torch.Generator().manual_seed(4))


def gradient(loss, *arguments):
    first = arguments[0].clone().requires_grad_()
    value = loss(first, *arguments[1:])
    (found,) = torch.autograd.grad(value.sum(), first)
    return value.detach(), found


OF_CLASSES = torch.arange(1.0, 6.0)
BITS = (LOGITS + 1 > 0).float()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("robust", "plain", "options", "arguments"),
    [
        (RobustCrossEntropy, nn.CrossEntropyLoss, {}, (LOGITS, CLASSES)),
        (RobustCrossEntropy, nn.CrossEntropyLoss, {"weight": OF_CLASSES}, (LOGITS, CLASSES)),
        (RobustCrossEntropy, nn.CrossEntropyLoss, {"ignore_index": 2}, (LOGITS, CLASSES)),
        (RobustCrossEntropy, nn.CrossEntropyLoss, {"label_smoothing": 0.2, "weight": OF_CLASSES}, (LOGITS, CLASSES)),
        (RobustCrossEntropy, nn.CrossEntropyLoss, {}, (LOGITS, SOFT)),
        (RobustCrossEntropy, nn.CrossEntropyLoss, {}, (LOGITS[0], CLASSES[0])),
        (RobustCrossEntropy, nn.CrossEntropyLoss, {"ignore_index": 1}, (MAPS, MAP_CLASSES)),
        (RobustBCEWithLogits, nn.BCEWithLogitsLoss, {"weight": SOFT, "pos_weight": OF_CLASSES}, (LOGITS, BITS)),
        (RobustMSELoss, nn.MSELoss, {}, (LOGITS, LOGITS.roll(1, 0))),
    ],
)
def test_at_strength_zero_it_is_the_plain_loss(robust, plain, options, arguments, reduction):
    expected = gradient(plain(**options, reduction=reduction), *arguments)
    torch.testing.assert_close(gradient(robust(**options, reduction=reduction, strength=0), *arguments), expected)


def test_the_loss_has_the_gradient_of_the_likelihood_and_a_value_without_the_entropy_of_the_noise():
    frequency = (CLASSES.bincount(minlength=5) + 1) / (12 + 5)
    turned = 0.7 * torch.eye(5) + 0.3 * frequency  # row c: what becomes of a label of class c
    entropy = -(frequency @ (turned * turned.log()).sum(1))
    expected = gradient(lambda logits: F.nll_loss((logits.softmax(1) @ turned).log(), CLASSES), LOGITS)
    torch.testing.assert_close(gradient(RobustCrossEntropy(strength=0.3, entropy=True), LOGITS, CLASSES), expected)
    without = gradient(RobustCrossEntropy(strength=0.3), LOGITS, CLASSES)
    torch.testing.assert_close(without, (expected[0] - entropy, expected[1]))
    two, labels = torch.stack((torch.zeros(12), LOGITS[:, 0]), 1), CLASSES % 2
    binary = RobustBCEWithLogits(strength=0.3)(LOGITS[:, 0], labels.float())
    torch.testing.assert_close(binary, RobustCrossEntropy(strength=0.3)(two, labels))


@pytest.mark.parametrize(
    ("options", "arguments"),
    [({"weight": OF_CLASSES}, (LOGITS, CLASSES)), ({"ignore_index": 2}, (SURE, CLASSES)), ({}, (LOGITS, SOFT))],
)
def test_without_the_entropy_a_share_of_every_value_remains_and_the_whole_gradient(options, arguments):
    whole = gradient(RobustCrossEntropy(strength=0.3, reduction="none", entropy=True, **options), *arguments)
    found = gradient(RobustCrossEntropy(strength=0.3, reduction="none", **options), *arguments)
    torch.testing.assert_close(found[1], whole[1])
    shares = (found[0] / whole[0])[whole[0] > 0]
    # Methods divide by losses, so a tenth of a perfect one remains.
    assert (abs(shares[0] - 0.1) < 1e-6) == (arguments[0] is SURE)
    torch.testing.assert_close(shares, shares[:1].expand_as(shares))


@pytest.mark.parametrize("make", [RobustBCEWithLogits, RobustMSELoss])
def test_labels_that_are_missing_do_not_count(make):
    target = (LOGITS > 0).float()
    holes = torch.rand(12, 5, generator=torch.Generator().manual_seed(5)) < 0.4
    value, found = gradient(make(), LOGITS, target.masked_fill(holes, torch.nan))
    assert found.isfinite().all()
    assert (found[holes] == 0).all()
    assert (found[~holes] != 0).all()
    loss, alone = make(), make()
    torch.testing.assert_close(loss(LOGITS, target, ~holes), value)
    torch.testing.assert_close(alone(LOGITS[~holes], target[~holes]), value)
    torch.testing.assert_close(loss.noise, alone.noise)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_a_mask_is_an_ignored_index(dtype):
    mask = CLASSES != 3
    found = RobustCrossEntropy(strength=0)(LOGITS, CLASSES.to(dtype), mask)
    torch.testing.assert_close(found, F.cross_entropy(LOGITS[mask], CLASSES[mask]))


def draw(noise, batches, classes=10, sharpness=6.0, seed=0):
    """Logits of a good network, and labels of which a share is drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        truth = torch.randint(classes, (64,), generator=generator)
        logits = torch.randn(64, classes, generator=generator) + sharpness * F.one_hot(truth, classes)
        drawn = torch.randint(classes, (64,), generator=generator)
        yield logits, torch.where(torch.rand(64, generator=generator) < noise, drawn, truth)


def taught(loss, batches):
    """The loss after these batches."""
    for outputs, targets in batches:
        loss(outputs, targets)
    return loss


@pytest.mark.parametrize("noise", [0.0, 0.2, 0.5, 0.8])
def test_the_noise_is_found(noise):
    loss = taught(RobustCrossEntropy(), draw(noise, 300))
    bits = ((two[:, 1] - two[:, 0], labels.float()) for two, labels in draw(noise, 300, classes=2))
    binary = taught(RobustBCEWithLogits(), bits)
    assert float(loss.noise) == pytest.approx(noise, abs=0.06)
    assert float(binary.noise) == pytest.approx(noise, abs=0.08)


def test_a_hard_task_is_not_a_noisy_one():
    loss, generator = RobustCrossEntropy(), torch.Generator().manual_seed(0)
    for _ in range(300):
        # Four samples of ten are easy, the others a guess among three classes.
        truth = torch.randint(10, (64,), generator=generator)
        easy = torch.rand(64, generator=generator) < 0.4
        logits = torch.randn(64, 10, generator=generator) + 8.0 * F.one_hot(truth, 10)
        guess = 3.0 * sum(F.one_hot((truth + shift) % 10, 10) for shift in (0, 1, 2))
        guess = guess + 0.1 * torch.randn(64, 10, generator=generator)
        loss(torch.where(easy[:, None], logits, guess), truth)
    assert float(loss.noise) < 0.03


def test_a_rare_class_is_not_taken_for_noise():
    target = torch.zeros(64)
    target[:3] = 1
    weak = torch.full((64,), -3.0)  # the network knows the frequency and nothing else
    plain, robust = nn.BCEWithLogitsLoss(), RobustBCEWithLogits(strength=0.2)
    shares = gradient(robust, weak, target)[1] / gradient(plain, weak, target)[1]
    assert shares.min() > 0.9 * shares.max()


def test_memorised_labels_are_forgotten_slowly():
    assert 0.3 < float(taught(RobustCrossEntropy(), [*draw(0.5, 200), *draw(0.0, 50, seed=1)]).noise) < 0.5


def outliers(noise, batches, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        truth = torch.randn(64, generator=generator)
        target = truth + (torch.rand(64, generator=generator) < noise) * torch.randn(64, generator=generator)
        yield truth + 0.1 * torch.randn(64, generator=generator), target


def belief(loss, target):
    """The gradient over that of the plain loss, relative to a target that fits perfectly."""
    targets = torch.tensor([1e-4, target])
    _, found = gradient(loss.eval(), torch.zeros(2), targets)
    shares = found / (-2 * targets)
    return (shares[1] / shares[0]).item()


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_a_task_counts_less_the_more_of_its_variance_remains_as_error(noise):
    loss, generator = RobustMSELoss(reduction="none"), torch.Generator().manual_seed(0)
    for _ in range(300):
        truth = torch.randn(64, generator=generator)
        loss(truth, truth + noise * torch.randn(64, generator=generator))
    _, found = gradient(loss, torch.zeros(1), torch.tensor([1e-4]))
    error = noise**2 / (1 + noise**2)
    assert found.item() / -2e-4 == pytest.approx(0.3 / (0.3 + error) * math.exp(-3 * float(loss.noise)), rel=0.1)


def test_bad_targets_lose_their_gradient_and_the_value_stays_plain():
    loss = taught(RobustMSELoss(reduction="none"), outliers(0.3, 300))
    assert float(loss.noise) == pytest.approx(0.3 / 1.3, abs=0.06)
    value, _ = gradient(loss.eval(), torch.zeros(2), torch.tensor([0.05, 1.5]))
    torch.testing.assert_close(value, torch.tensor([0.05, 1.5]).square())
    # Bad targets are 0.23 of the variance: distrusted to 0.23^2 / (0.23^2 + 0.1^2), by the odds of being one.
    assert belief(loss, 0.05) > 0.9
    assert belief(loss, 1.5) == pytest.approx(0.2, abs=0.08)


def test_autocast_does_not_round_what_it_remembers():
    plain, cast = RobustMSELoss(), RobustMSELoss()
    for prediction, target in outliers(0.3, 5):
        plain(prediction, target)
        with torch.autocast("cpu", torch.bfloat16):
            cast(prediction, target)
    torch.testing.assert_close(cast.moments, plain.moments, rtol=0, atol=0)


def test_heavy_tails_are_noise():
    loss, tails = RobustMSELoss(reduction="none"), torch.distributions.StudentT(1.5)
    torch.manual_seed(0)
    for prediction, target in outliers(0.0, 300):
        loss(prediction, target + torch.where(torch.rand(64) < 0.4, tails.sample((64,)), torch.zeros(64)))
    assert belief(loss, 20.0) < 0.3


def test_a_network_that_knows_little_distrusts_nothing():
    loss, generator = RobustMSELoss(reduction="none"), torch.Generator().manual_seed(0)
    for _ in range(300):
        rare = (torch.rand(64, generator=generator) < 0.15).float()
        loss(0.15 + 0.1 * torch.randn(64, generator=generator), rare)
    assert belief(loss, 1.0) == pytest.approx(1.0, rel=0.1)


def test_small_residuals_are_not_noise():
    loss, generator = RobustMSELoss(reduction="none"), torch.Generator().manual_seed(0)
    for prediction, target in outliers(0.0, 300):
        loss(prediction, target + 0.02 * torch.randn(64, generator=generator) ** 3)
    assert belief(loss, 0.5) == pytest.approx(1.0, abs=0.05)


def test_rare_large_targets_that_can_be_predicted_are_not_noise():
    loss, generator = RobustMSELoss(reduction="none"), torch.Generator().manual_seed(0)
    for _ in range(300):
        target = torch.randn(64, generator=generator).mul(1.5).exp()
        loss(0.6 * target, target)  # everything is seen, the large ones are not yet reached
    assert belief(loss, 30.0) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("make", [RobustCrossEntropy, RobustBCEWithLogits, RobustMSELoss])
def test_evaluation_learns_nothing_and_a_state_goes_on(make):
    batches = list(draw(0.5, 40)) if make is RobustCrossEntropy else list(outliers(0.5, 40))
    if make is RobustBCEWithLogits:
        batches = [(prediction, (target > 0).float()) for prediction, target in batches]
    whole, second = taught(make(), batches), make()
    second.load_state_dict(taught(make(), batches[:20]).state_dict())
    taught(second, batches[20:])
    before = {name: value.clone() for name, value in second.state_dict().items()}
    second.eval()(*batches[0])
    torch.testing.assert_close(second.state_dict(), before, rtol=0, atol=0)
    torch.testing.assert_close(second.state_dict(), whole.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("make", [RobustCrossEntropy, RobustBCEWithLogits, RobustMSELoss])
def test_batches_without_labels_and_extreme_outputs_leave_it_sane(make):
    loss = make()
    target = torch.full((4,), -100) if make is RobustCrossEntropy else torch.full((4,), torch.nan)
    outputs = torch.randn(4, 3) if make is RobustCrossEntropy else torch.randn(4)
    loss(outputs, target)
    assert float(loss.noise) == 0
    value, found = gradient(loss, outputs * 1e4, torch.zeros(4, dtype=target.dtype))
    assert value.isfinite()
    assert found.isfinite().all()
    assert loss.noise.isfinite()


@pytest.mark.parametrize("make", [RobustCrossEntropy, RobustBCEWithLogits, RobustMSELoss])
def test_bad_arguments_are_named(make):
    with pytest.raises(ValueError, match=r"strength must be .*found 1.5"):
        make(strength=1.5)
    with pytest.raises(ValueError, match="reduction must be 'mean', 'sum' or 'none', found 'x'"):
        make(reduction="x")
    if make is not RobustCrossEntropy:
        with pytest.raises(ValueError, match=r"shape of the input, \[3\], found \[3, 1\]"):
            make()(torch.zeros(3), torch.zeros(3, 1))
