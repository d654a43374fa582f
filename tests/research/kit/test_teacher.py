import pytest
import torch

from research.kit.teacher import HELD_OUT, REGIMES, world


@pytest.mark.parametrize("name", REGIMES)
def test_a_regime_is_what_it_says(name):
    regime = REGIMES[name]
    inputs, targets = world(regime, 3)
    assert len(inputs) == regime.training + 2 * HELD_OUT
    units = regime.units or (1.0,) * len(regime.classes)
    for target, classes, unit in zip(targets, regime.classes, units, strict=True):
        own = target[: regime.training]
        if classes:
            assert set(own.unique().tolist()) <= set(range(classes))
            assert torch.bincount(own).max() < 0.9 * len(own)  # there is something left to learn
        else:
            assert own.std().item() == pytest.approx(unit, rel=1e-2)
