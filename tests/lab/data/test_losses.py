import math

import pytest
import torch

from excessmtl.lab.data.kinds import binary, classification, depth, normals, regression, segmentation

LOGIT = torch.tensor([[0.0], [math.log(3)]])
NUMBERS = torch.tensor([[1.0], [2.0], [3.0]])
CLASSES = torch.tensor([[50.0, 0, 0, 0], [0, 0, 0, 0]] * 2).T.reshape(1, 4, 2, 2).roll(1, 1)
DEPTHS, KNOWN = torch.tensor([[[[1.0, 9.0], [2.0, 9.0]]]]), torch.tensor([[[[2.0, 0.0], [5.0, 0.0]]]])
NORMALS = torch.tensor([[7.0, 0, 0], [1, 1, 0], [1, 2, 3]]).T.reshape(1, 3, 1, 3)


@pytest.mark.parametrize(
    ("kind", "output", "target", "expected"),
    [
        # Cross-entropies of probabilities 1/2 and 3/4.
        (classification, torch.cat([0 * LOGIT, LOGIT], 1), torch.tensor([0, 1]), (math.log(2) + math.log(4 / 3)) / 2),
        (binary, LOGIT, torch.tensor([0, 1]), (math.log(2) + math.log(4 / 3)) / 2),
        (binary, LOGIT, torch.tensor([[0], [1]]), (math.log(2) + math.log(4 / 3)) / 2),
        # One number per example may come as (n,) or (n, 1); a mean over the outputs too.
        (regression, NUMBERS, torch.tensor([1.0, 4.0, 6.0]), (0 + 4 + 9) / 3),
        (regression, NUMBERS, torch.tensor([[1.0], [4.0], [6.0]]), (0 + 4 + 9) / 3),
        (regression, torch.zeros(2, 2), torch.tensor([[1.0, 1], [1, 3]]), 3),
        # Unknown pixels (-1) are ignored, and the classes are small integers.
        (segmentation, CLASSES, torch.tensor([[[1, 2], [-1, -1]]], dtype=torch.int8), math.log(4) / 2),
        # The absolute error of known depths, with or without channels.
        (depth, DEPTHS, KNOWN, 2),
        (depth, DEPTHS, KNOWN[:, 0], 2),
        # Normals are compared by their direction; the last one is unknown.
        (normals, NORMALS, torch.diag(torch.tensor([1.0, 1, 0])).reshape(1, 3, 1, 3), 1 - (1 + math.sqrt(0.5)) / 2),
    ],
)
def test_a_loss_against_a_sum_by_hand(kind, output, target, expected):
    assert kind.loss(output, target).item() == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "outputs"), [(segmentation, 3), (depth, 1), (normals, 3)])
def test_a_batch_without_known_pixels_gives_a_finite_loss_and_no_gradient(kind, outputs):
    output = torch.randn(2, outputs, 4, 4, requires_grad=True)
    target = torch.full((2, 4, 4), -1) if kind == segmentation else torch.zeros(2, outputs, 4, 4)
    loss = kind.loss(output, target)
    assert loss.isfinite()
    assert not torch.autograd.grad(loss, output)[0].any()
