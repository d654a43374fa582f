"""Robust losses of a fixed strength against their formulas."""

import pytest
import torch
from torch.nn import functional as F

from excessmtl.losses import (
    BootstrappedCrossEntropy,
    ForwardCorrectedCrossEntropy,
    GeneralizedCrossEntropy,
    GeneralRobustLoss,
    SymmetricCrossEntropy,
    estimate_transition,
)

LOGITS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
CLASSES = torch.randint(5, (12,), generator=torch.Generator().manual_seed(1))
P = LOGITS.softmax(1)
P_Y = P.gather(1, CLASSES[:, None])[:, 0]


def test_generalized_cross_entropy():
    torch.testing.assert_close(GeneralizedCrossEntropy(0.7)(LOGITS, CLASSES), ((1 - P_Y**0.7) / 0.7).mean())
    nearly = GeneralizedCrossEntropy(1e-4)(LOGITS, CLASSES)
    torch.testing.assert_close(nearly, F.cross_entropy(LOGITS, CLASSES), rtol=1e-3, atol=1e-3)


def test_symmetric_cross_entropy():
    reverse = -(P * torch.where(F.one_hot(CLASSES, 5) > 0, 0.0, -4.0)).sum(1)
    torch.testing.assert_close(SymmetricCrossEntropy()(LOGITS, CLASSES), (0.1 * -P_Y.log() + reverse).mean())


@pytest.mark.parametrize("hard", [False, True])
def test_bootstrapping(hard):
    own = F.one_hot(P.argmax(1), 5).float() if hard else P
    target = 0.8 * F.one_hot(CLASSES, 5) + 0.2 * own
    torch.testing.assert_close(BootstrappedCrossEntropy(0.8, hard)(LOGITS, CLASSES), -(target * P.log()).sum(1).mean())


def test_forward_correction_and_the_transition_from_held_out_predictions():
    transition = torch.eye(5).roll(1, 1) * 0.3 + torch.eye(5) * 0.7
    expected = -(P @ transition).gather(1, CLASSES[:, None]).log().mean()
    torch.testing.assert_close(ForwardCorrectedCrossEntropy(transition)(LOGITS, CLASSES), expected)
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(5, (4000,), generator=generator)
    labels = torch.where(torch.rand(4000, generator=generator) < 0.3, (truth + 1) % 5, truth)
    probabilities = (torch.randn(4000, 5, generator=generator) + 8 * F.one_hot(truth, 5)).softmax(1)
    torch.testing.assert_close(estimate_transition(probabilities, labels), transition, atol=0.06, rtol=0)


@pytest.mark.parametrize("alpha", [2.0, 1.0, 0.0, -2.0, -torch.inf])
def test_the_general_loss_and_its_special_cases(alpha):
    residuals = torch.linspace(-3, 3, 13)
    squares = (residuals / 0.5) ** 2
    expected = {
        2.0: squares / 2,
        1.0: (squares + 1).sqrt() - 1,
        0.0: (squares / 2 + 1).log(),
        -2.0: 2 * squares / (squares + 4),
        -torch.inf: 1 - (-squares / 2).exp(),
    }[alpha]
    torch.testing.assert_close(GeneralRobustLoss(alpha, 0.5, "none")(residuals, torch.zeros(13)), expected)


@pytest.mark.parametrize(
    "loss",
    [
        GeneralizedCrossEntropy(ignore_index=2),
        SymmetricCrossEntropy(ignore_index=2),
        BootstrappedCrossEntropy(ignore_index=2),
        ForwardCorrectedCrossEntropy(torch.eye(5), ignore_index=2),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_ignored_targets_and_maps(loss):
    counts = CLASSES != 2
    torch.testing.assert_close(loss(LOGITS, CLASSES), loss(LOGITS[counts], CLASSES[counts]))
    torch.testing.assert_close(loss(LOGITS.T.reshape(1, 5, 3, 4), CLASSES.reshape(1, 3, 4)), loss(LOGITS, CLASSES))
    with pytest.raises(ValueError, match="found shapes"):
        loss(LOGITS, P)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GeneralizedCrossEntropy(0), "q must be"),
        (lambda: SymmetricCrossEntropy(alpha=-1), "alpha and beta"),
        (lambda: BootstrappedCrossEntropy(2), "beta must be"),
        (lambda: ForwardCorrectedCrossEntropy(torch.ones(2, 2)), "rows sum to 1"),
        (lambda: GeneralRobustLoss(scale=0), "scale must be"),
        (
            lambda: GeneralRobustLoss()(torch.zeros(8, 1), torch.zeros(8)),
            r"target must have the shape of the input, \[8, 1\], found \[8\]",
        ),
        (lambda: estimate_transition(torch.ones(3), torch.ones(3)), "probabilities must be"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
