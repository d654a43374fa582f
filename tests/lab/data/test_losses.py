import math

import pytest
import torch

from excessmtl.lab.data.kinds import binary, classification, depth, normals, regression, segmentation
from excessmtl.lab.data.tasks import Kind


def test_classification_is_cross_entropy() -> None:
    output = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]])
    expected = (math.log(2) + math.log(4 / 3)) / 2
    assert classification.loss(output, torch.tensor([0, 1])).item() == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_binary_is_the_cross_entropy_of_a_logit(shape: tuple[int, ...]) -> None:
    output = torch.tensor([[0.0], [math.log(3)]])
    expected = (math.log(2) + math.log(4 / 3)) / 2
    assert binary.loss(output, torch.tensor([0, 1]).reshape(shape)).item() == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_regression_does_not_broadcast(shape: tuple[int, ...]) -> None:
    output = torch.tensor([[1.0], [2.0], [3.0]])
    target = torch.tensor([1.0, 4.0, 6.0]).reshape(shape)
    assert regression.loss(output, target).item() == pytest.approx((0 + 4 + 9) / 3)


def test_regression_is_a_mean_over_outputs_too() -> None:
    assert regression.loss(torch.zeros(2, 2), torch.tensor([[1.0, 1], [1, 3]])).item() == 3


def test_segmentation_ignores_unknown_pixels_and_takes_small_integers() -> None:
    output = torch.zeros(1, 4, 2, 2)
    output[0, 1, 0, 0] = 50
    target = torch.tensor([[[1, -1], [2, -1]]], dtype=torch.int8)
    loss = segmentation.loss(output, target)
    assert loss.item() == pytest.approx(math.log(4) / 2)


def test_depth_is_the_absolute_error_of_known_pixels() -> None:
    output = torch.tensor([[[[1.0, 9.0], [2.0, 9.0]]]])
    target = torch.tensor([[[[2.0, 0.0], [5.0, 0.0]]]])
    assert depth.loss(output, target).item() == 2
    assert depth.loss(output, target[:, 0]).item() == 2


def test_normals_are_compared_by_direction() -> None:
    target = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 0]]).T.reshape(1, 3, 1, 3)
    output = torch.tensor([[7.0, 0, 0], [1, 1, 0], [1, 2, 3]]).T.reshape(1, 3, 1, 3)
    expected = 1 - (1 + math.sqrt(0.5)) / 2
    assert normals.loss(output, target).item() == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "outputs"), [(segmentation, 3), (depth, 1), (normals, 3)])
def test_a_batch_without_known_pixels_gives_a_finite_loss_and_no_gradient(kind: Kind, outputs: int) -> None:
    output = torch.randn(2, outputs, 4, 4, requires_grad=True)
    target = torch.full((2, 4, 4), -1) if kind == segmentation else torch.zeros(2, outputs, 4, 4)
    loss = kind.loss(output, target)
    assert loss.isfinite()
    assert not torch.autograd.grad(loss, output)[0].any()
