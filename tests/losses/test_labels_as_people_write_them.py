"""Labels in other types and codes than the usual ones: the same numbers as for the usual ones."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import excessmtl
from excessmtl.losses import GeneralizedCrossEntropy, RobustBCEWithLogits, RobustCrossEntropy

ENCODER = nn.Linear(2, 2)
CLASSES = torch.randint(0, 2, (16,), generator=torch.Generator().manual_seed(0))
OUTPUT = torch.randn(16, 2, generator=torch.Generator().manual_seed(1))
HALF = torch.arange(16) < 8
ON_HALF = pytest.approx(F.cross_entropy(OUTPUT[:8], CLASSES[:8]).item()), 8


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def loss_of(loss, target, output=OUTPUT, mask=None, **options):
    criterion = excessmtl.MultiTaskLoss({"a": loss}, shared=ENCODER, method="uniform", **options)
    losses, masks = criterion.by_task({"a": output}, {"a": target}, None if mask is None else {"a": mask})
    return losses["a"].item(), masks["a"].sum().item()


@pytest.mark.parametrize("own", [False, True], ids=["kind", "own loss"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32])
def test_class_numbers_of_any_type_may_have_a_mask(dtype, own):
    loss = (lambda input, target: F.cross_entropy(input, target.long(), reduction="none")) if own else "classification"
    assert loss_of(loss, CLASSES.to(dtype), mask=HALF) == ON_HALF


class Own(nn.Module):
    ignore_index = None

    def forward(self, input, target):
        return F.cross_entropy(input, target, reduction="none")


def test_an_ignore_index_that_is_no_number_is_left_alone():
    assert loss_of(Own(), CLASSES) == (pytest.approx(F.cross_entropy(OUTPUT, CLASSES).item()), 16)


@pytest.mark.parametrize("kind", [nn.CrossEntropyLoss, RobustCrossEntropy, partial(partial, F.cross_entropy)])
def test_the_ignore_index_of_a_loss_marks_what_has_no_label_too(kind):
    loss, target = kind(ignore_index=255), torch.where(HALF, CLASSES, 255)
    assert loss_of(loss, target) == ON_HALF
    report = excessmtl.MultiTaskLoss({"a": loss}, ENCODER).diagnose({"a": OUTPUT}, {"a": target})
    assert report["a"].samples == 8


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_the_ignore_index_is_no_target_of_a_regression_where_it_is_negative(dtype):
    target, output = torch.where(HALF, 3, -100).to(dtype), torch.zeros(16)
    assert loss_of("regression", target, output, robust=False) == (9.0, 8)
    report = excessmtl.MultiTaskLoss({"a": "regression"}, ENCODER).diagnose({"a": output}, {"a": target})
    assert report["a"].samples == 8
    counts = torch.where(HALF, 2, 0).to(dtype)  # 0 is a number, whatever class it stands for
    assert loss_of("regression", counts, output, robust=False, ignore=0) == (2.0, 16)


def test_a_byte_is_not_the_ignore_index():
    large = torch.randn(16, 200, generator=torch.Generator().manual_seed(0))
    found = GeneralizedCrossEntropy()(large, torch.full((16,), 156, dtype=torch.uint8))
    assert found == GeneralizedCrossEntropy()(large, torch.full((16,), 156))
    pixels = torch.full((16,), 156, dtype=torch.uint8)  # what -100 would be in a byte
    assert loss_of("regression", pixels, torch.zeros(16), robust=False) == (156.0**2, 16)
    assert loss_of(lambda input, target: input + target, pixels, torch.zeros(16)) == (156.0, 16)


@pytest.mark.parametrize("robust", [True, False])
def test_signs_are_refused_as_labels_of_two_classes(robust):
    with pytest.raises(ValueError, match="from 0 to 1, or be NaN where there is no label, found -1; code the two"):
        loss_of("binary", 2 * CLASSES - 1, torch.zeros(16), robust=robust)


@pytest.mark.parametrize("kind", ["classification", "binary", "regression"])
def test_what_was_trained_can_be_evaluated_in_any_precision(kind, doubles):
    weights = {"classification": {"weight": torch.ones(2)}, "binary": {"pos_weight": torch.ones(())}}
    criterion = excessmtl.MultiTaskLoss({"a": kind}, ENCODER, "uniform", loss_options={"a": weights.get(kind, {})})
    criterion.double()
    output = OUTPUT if kind == "classification" else OUTPUT[:, 0]
    for mode in (True, False):
        losses, _ = criterion.train(mode).by_task({"a": output.double()}, {"a": CLASSES.int()})
        assert losses["a"].isfinite()


@pytest.mark.parametrize("length", [2, 5])
def test_soft_labels_of_a_sequence_may_have_holes(length):
    draw = torch.Generator().manual_seed(0)
    output, target = (torch.randn(4, 2, length, generator=draw).softmax(1) for _ in range(2))
    expected = F.cross_entropy(output, target, reduction="none").flatten()[1:].mean()
    target[0, :, 0] = torch.nan
    assert loss_of(nn.CrossEntropyLoss(), target, output) == (pytest.approx(expected.item()), 4)


@pytest.mark.parametrize("samples", [8191, 8192])
@pytest.mark.parametrize("unlabelled", [False, True])
def test_the_noise_of_a_large_batch_is_looked_for_in_all_its_columns(samples, unlabelled):
    loss, draw = RobustBCEWithLogits(), torch.Generator().manual_seed(0)
    for _ in range(10):
        truth = (torch.rand(samples, 4, generator=draw) > 0.5).float()
        labels = torch.where(torch.rand(samples, 4, generator=draw) < 0.3, 1 - truth, truth)
        labels[:, 0] = torch.nan if unlabelled else truth[:, 0]
        loss((10 * truth - 5).requires_grad_(), labels)
    assert loss.noise.item() == pytest.approx(0.6 if unlabelled else 0.45, abs=0.03)
