import pytest
import torch

from excessmtl.lab.data import registry
from excessmtl.lab.data.kinds import regression
from excessmtl.lab.data.teacher import REGIMES


@pytest.mark.parametrize("name", REGIMES)
def test_a_regime_is_what_it_says(name):
    regime, made = REGIMES[name], registry()[name].load(3)
    assert [task.kind for task in made.tasks] == list(regime.kinds)
    assert made.noisy_tasks == tuple(f"task_{i + 1}" for i in regime.noisy)
    assert isinstance(made.train.inputs, dict) == regime.separate
    units = regime.units or (1.0,) * len(regime.kinds)
    for task, unit in zip(made.tasks, units, strict=True):
        target = made.train.targets[task.name]
        assert len(target) == regime.samples
        if task.kind == regression:
            assert target.std().item() == pytest.approx(unit, rel=1e-2)
        else:
            assert set(target.unique().tolist()) <= set(range(task.outputs))
            assert torch.bincount(target).max() < 0.9 * len(target)  # there is something left to learn
