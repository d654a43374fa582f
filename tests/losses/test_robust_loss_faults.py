"""Robust losses under bad batches, raw targets, other precisions and impossible labels."""

import copy
import itertools
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from excessmtl.losses import GeneralizedCrossEntropy, RobustBCEWithLogits, RobustCrossEntropy, RobustMSELoss

ALL = [RobustCrossEntropy, RobustBCEWithLogits, RobustMSELoss]


def batches(make, count, seed=0, size=64, noise=0.2):
    """Outputs of a good network, and labels of which a share is wrong."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        wrong = torch.rand(size, generator=generator) < noise
        if make is RobustMSELoss:
            truth = torch.randn(size, generator=generator)
            output = truth + 0.1 * torch.randn(size, generator=generator)
            yield output, torch.where(wrong, torch.randn(size, generator=generator), truth)
            continue
        truth = torch.randint(2, (size,), generator=generator)
        label = torch.where(wrong, torch.randint(2, (size,), generator=generator), truth)
        logits = torch.randn(size, 2, generator=generator) + 5 * F.one_hot(truth, 2)
        if make is RobustCrossEntropy:
            yield logits, label
        else:
            yield logits[:, 1] - logits[:, 0], label.float()


def taught(loss, make, count, **options):
    for output, target in batches(make, count, **options):
        loss(output.requires_grad_(), target)
    return loss


def steps(loss):
    return loss.steps if isinstance(loss, RobustMSELoss) else loss.rate.steps


def share_of_plain_gradient(loss, residual):
    """The gradient over that of the plain loss, of a target that is so far from the prediction."""
    prediction = torch.zeros(1, requires_grad=True)
    loss.eval()(prediction, torch.tensor([residual])).backward()
    loss.train()
    return prediction.grad.item() / (-2 * residual)


def unchanged(loss, call, error=None):
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    with nullcontext() if error is None else pytest.raises(error):
        call()
    torch.testing.assert_close(loss.state_dict(), before, rtol=0, atol=0)


# ---------------------------------------------------------------- squared error: bad batches and raw targets


@pytest.mark.parametrize("at", [0, 300])
def test_one_bad_batch_wears_off_within_a_hundred_steps(at):
    before = taught(RobustMSELoss(), RobustMSELoss, at)
    after = 100 if at else 200  # another hundred where the first batch is bad: the estimates themselves are young
    usual = taught(copy.deepcopy(before), RobustMSELoss, after, seed=2)
    output, target = next(batches(RobustMSELoss, 1, seed=1))
    for size, everything in itertools.product((1e3, 1e15), (False, True)):
        loss = copy.deepcopy(before)
        loss(output.requires_grad_(), target * size if everything else torch.cat((torch.tensor([size]), target[1:])))
        taught(loss, RobustMSELoss, after, seed=2)
        for residual in (0.05, 1.5):
            found, expected = share_of_plain_gradient(loss, residual), share_of_plain_gradient(usual, residual)
            assert found == pytest.approx(expected, abs=0.08), (size, everything, residual)
        assert float(loss.noise) == pytest.approx(float(usual.noise), abs=0.06), (size, everything)


def test_outliers_that_keep_coming_lose_their_gradient():
    loss = RobustMSELoss()
    for output, target in batches(RobustMSELoss, 300, noise=0.0):
        loss(output.requires_grad_(), torch.cat((torch.tensor([1e4, -1e4]), target[2:])))
    assert share_of_plain_gradient(loss, 1e4) < 0.05 * share_of_plain_gradient(loss, 0.05)


def trained(loss, optimiser, mean, std, batch=32, steps=600):
    """Mean squared error of a small network on new data, over the variance of the targets."""
    torch.manual_seed(0)
    x = torch.randn(1024, 5)
    y = torch.tanh(x @ torch.randn(5, 4)).sum(1)
    y = mean + std * (y - y.mean()) / y.std()
    network = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1))
    optimiser = optimiser(network.parameters())
    for _ in range(steps):
        rows = torch.randint(768, (batch,))
        optimiser.zero_grad()
        loss(network(x[rows])[:, 0], y[rows]).backward()
        optimiser.step()
    with torch.no_grad():
        return F.mse_loss(network(x[768:])[:, 0], y[768:]).item() / std**2


@pytest.mark.parametrize(
    ("name", "mean", "std"), [("SGD", -30.0, 3.0), ("SGD", 5.0, 0.3), ("Adam", 20.0, 1.0), ("Adam", 0.0, 1.0)]
)
def test_raw_targets_are_learned_as_with_the_plain_loss(name, mean, std):
    # The step size of plain SGD does not depend on the unit of the targets, that of Adam does.
    rate = 0.05 if name == "SGD" else 0.02 * max(1.0, abs(mean) / 10)
    found, plain = (
        trained(loss, lambda parameters: getattr(torch.optim, name)(parameters, lr=rate), mean, std)
        for loss in (RobustMSELoss(), nn.MSELoss())
    )
    assert plain < 0.25
    assert found < 2 * plain + 0.1


def test_batches_of_a_single_target_are_learned():
    assert trained(RobustMSELoss(), lambda parameters: torch.optim.SGD(parameters, lr=0.01), 0.0, 1.0, 1, 1200) < 0.3


def test_targets_that_are_all_equal_are_learned():
    prediction, loss = torch.zeros(8, requires_grad=True), RobustMSELoss(reduction="sum")
    optimiser = torch.optim.SGD([prediction], lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        loss(prediction, torch.full((8,), 7.0)).backward()
        optimiser.step()
    torch.testing.assert_close(prediction.detach(), torch.full((8,), 7.0), rtol=1e-3, atol=0)


# ---------------------------------------------------------------- batches that do not count


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("make", ALL)
def test_a_batch_with_nan_or_infinite_outputs_does_not_count(make, value):
    loss = taught(make(), make, 10)
    for output, target in batches(make, 3, seed=1):
        output[0] = value
        unchanged(loss, lambda output=output, target=target: loss(output.requires_grad_(), target))


@pytest.mark.parametrize("make", ALL)
def test_outputs_that_are_nan_where_there_is_no_label_do_no_harm(make):
    loss, expected = make(), make()
    for output, target in batches(make, 5):
        target[0] = -100 if make is RobustCrossEntropy else torch.nan
        expected(output.clone().requires_grad_(), target)
        output[0] = torch.nan
        loss(output.requires_grad_(), target)
    torch.testing.assert_close(loss.state_dict(), expected.state_dict())
    assert steps(loss) == 5


@pytest.mark.parametrize("make", ALL)
def test_a_batch_that_fails_does_not_count(make):
    loss = taught(make(), make, 10)
    output, target = next(batches(make, 1, seed=1))
    if make is RobustCrossEntropy:
        loss.options["label_smoothing"] = 2.0  # refused by torch at the end
        unchanged(loss, lambda: loss(output.requires_grad_(), target), RuntimeError)
        loss.options["label_smoothing"] = 0.0
    if make is RobustBCEWithLogits:
        loss.weight = torch.ones(3)
        unchanged(loss, lambda: loss(output.requires_grad_(), target), RuntimeError)
    unchanged(loss, lambda: loss(output.requires_grad_(), target[:-1]), (ValueError, RuntimeError))


@pytest.mark.parametrize("make", ALL)
def test_nothing_is_learned_where_gradients_are_off(make):
    loss = taught(make(), make, 10)
    output, target = next(batches(make, 1, seed=1, noise=1.0))
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            unchanged(loss, lambda: loss(output, target))


# ---------------------------------------------------------------- precision, inference mode, types


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("make", ALL)
def test_the_estimates_stay_in_single_precision(make, dtype):
    loss, expected = make().to(dtype), make()
    for count in (0, 3000):  # half precision cannot count so far
        for one in (loss, expected):
            steps(one).fill_(count)
            taught(one, make, 3)
        loss.to(dtype)
    torch.testing.assert_close(loss.state_dict(), expected.state_dict(), rtol=0, atol=0)
    output, target = next(batches(make, 1))
    output = output.to(dtype).requires_grad_()
    loss(output, target if make is RobustCrossEntropy else target.to(dtype)).backward()
    assert output.grad.isfinite().all()


@pytest.mark.parametrize("make", ALL)
def test_a_loss_made_in_inference_mode_learns(make):
    with torch.inference_mode():
        weight = {} if make is RobustMSELoss else {"weight": torch.ones(2 if make is RobustCrossEntropy else 64)}
        loss = make(**weight)
    output, target = next(batches(make, 1))
    loss(output.requires_grad_(), target).backward()
    assert output.grad is not None
    assert steps(loss) == 1


@pytest.mark.parametrize("of_logits", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("of_weight", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_class_weights_may_have_another_precision_than_logits(of_logits, of_weight):
    logits, labels = next(batches(RobustCrossEntropy, 1))
    weight = torch.tensor([1.0, 3.0])
    found = RobustCrossEntropy(weight=weight.to(of_weight))(logits.to(of_logits).requires_grad_(), labels)
    torch.testing.assert_close(found, F.cross_entropy(logits.to(of_logits).float(), labels, weight))
    soft = F.one_hot(labels, 2).to(of_logits)
    torch.testing.assert_close(RobustCrossEntropy(strength=0)(logits, soft), F.cross_entropy(logits, labels))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool])
@pytest.mark.parametrize("make", [RobustCrossEntropy, RobustBCEWithLogits, GeneralizedCrossEntropy])
def test_labels_of_any_whole_type_are_taken(make, dtype):
    loss, expected = make(), make()
    for output, target in batches(RobustBCEWithLogits if make is RobustBCEWithLogits else RobustCrossEntropy, 3):
        torch.testing.assert_close(loss(output, target.to(dtype)), expected(output, target))
    torch.testing.assert_close(loss.state_dict(), expected.state_dict())


@pytest.mark.parametrize("value", [2.0, -1.0, 255.0])
def test_a_binary_target_beyond_0_and_1_is_refused(value):
    loss = taught(RobustBCEWithLogits(), RobustBCEWithLogits, 10)
    output, target = next(batches(RobustBCEWithLogits, 1))
    target[3] = value
    with pytest.raises(ValueError, match=rf"target must lie from 0 to 1.*found {value:g}"):
        loss(output, target)
    assert loss.rate.steps == 10
    # Where there is no label anything may stand.
    assert loss(output, target, torch.arange(64) != 3).isfinite()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_binary_target_beyond_0_and_1_makes_the_loss_nan_and_does_not_count():
    loss = taught(RobustBCEWithLogits(), RobustBCEWithLogits, 10).cuda()
    output, target = (one.cuda() for one in next(batches(RobustBCEWithLogits, 1)))
    target[3] = 2
    assert loss(output.requires_grad_(), target).isnan()
    assert loss.rate.steps == 10


@pytest.mark.parametrize("make", ALL)
def test_a_step_reads_nothing_from_the_device(make):
    # Tensors of the meta device have no values: whatever asks for one fails.
    loss = make().to("meta")
    for output, target in batches(make, 2):
        output = output.to("meta").requires_grad_()
        loss(output, target.to("meta")).backward()
        loss(output, target.to("meta"), torch.ones(64, dtype=torch.bool, device="meta"))
    assert output.grad is not None


@pytest.mark.parametrize("prefix", ["", "price."])
def test_a_state_of_an_earlier_version_is_refused_in_one_sentence(prefix):
    loss = RobustMSELoss()
    state = {f"{prefix}steps": torch.tensor(5.0), f"{prefix}moments": torch.ones(2, 6)}
    module = nn.ModuleDict({"price": loss}) if prefix else loss
    with pytest.raises(ValueError, match=rf"^{prefix}moments has shape \[2, 6\].*earlier version.*strict=False"):
        module.load_state_dict(state)
    assert not loss.moments.any()


@pytest.mark.parametrize("label", [3, -1])
def test_a_class_without_an_output_is_named(label):
    said = f"classes from 0 to 2, as many as there are outputs, or ignore_index where there is no label, found {label}"
    with pytest.raises(ValueError, match=said):
        RobustCrossEntropy()(torch.zeros(4, 3), torch.tensor([0, -100, label, 1]))
