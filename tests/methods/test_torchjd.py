"""TorchJD as an oracle, for gradients of two and of six tasks.

`oracles/` has three, and the methods TorchJD lacks; `tests/solvers` has MGDA, CAGrad and Nash with up to 64.
"""

import pytest
import torch
from observing import observe, rule_of, weights_of

aggregation = pytest.importorskip("torchjd.aggregation")


def draw(seed, tasks):
    torch.manual_seed(seed)
    return torch.randn(tasks, 3 * tasks) * (1 + 3 * torch.rand(tasks, 1))


def optional(name, **options):
    try:
        return getattr(aggregation, name)(**options)
    except ImportError as missing:
        pytest.skip(f"TorchJD's {name} needs packages that are not installed: {missing}")


# Ours, theirs, and how near, relative to the length of the step. Theirs adds 1e-4 to the diagonal of a cone's matrix.
STEPS = [
    ("imtl", {}, "IMTLG", {}, 1e-3),
    ("aligned_mtl", {}, "AlignedMTL", {}, 3e-3),
    ("aligned_mtl", {"size": "median"}, "AlignedMTL", {"scale_mode": "median"}, 3e-3),
    ("config", {}, "ConFIG", {}, 3e-3),
    ("upgrad", {}, "UPGrad", {}, 3e-3),
    ("dualproj", {}, "DualProj", {}, 3e-3),
    ("fairgrad", {"alpha": 2.0, "max_norm": None}, "FairGrad", {"alpha": 2.0}, 3e-3),
    ("pcd", {"tau": 0.5}, "PCD", {"tau": 0.5}, 3e-3),
]


@pytest.mark.parametrize(("name", "options", "theirs", "their_options", "near"), STEPS, ids=str)
def test_the_steps_are_theirs(name, options, theirs, their_options, near):
    for tasks in (2, 6):
        aggregator = optional(theirs, **their_options)
        for seed in range(3):
            gradients = draw(seed, tasks)
            if theirs == "PCD":
                aggregator.reset()
            ours, expected = weights_of(name, gradients, **options) @ gradients, aggregator(gradients)
            torch.testing.assert_close(ours, expected, atol=near * expected.norm().item(), rtol=0)


def test_trimmed_mean():
    for seed in range(5):
        gradients = draw(seed, 5)
        decision = rule_of("trimmed_mean", 5).update({}, observe(gradients))
        torch.testing.assert_close(decision.direction, aggregation.TrimmedMean(1)(gradients))
        assert decision.weights.sum() == pytest.approx(1)
