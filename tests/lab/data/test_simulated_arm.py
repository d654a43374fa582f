import numpy as np
import pytest
import torch

from excessmtl.lab.data.simulated_arm import load, motions


def test_training_data_is_standardised_and_the_test_data_with_it() -> None:
    bench = load(None, 0)
    for x in (bench.train.inputs, *bench.train.targets.values()):
        assert isinstance(x, torch.Tensor)
        torch.testing.assert_close(x.mean(0), torch.zeros(x.shape[1]), atol=1e-5, rtol=0)
        torch.testing.assert_close(x.std(0), torch.ones(x.shape[1]), atol=1e-3, rtol=0)
    for y in bench.test.targets.values():
        assert y.std().item() == pytest.approx(1, abs=0.3)
        assert y.mean().abs() > 1e-5


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size is 'large': choose one of small, paper"):
        load(None, 0, size="large")


def test_velocities_and_accelerations_belong_to_the_positions() -> None:
    q, qd, qdd = motions(50, np.random.default_rng(0))
    step = 5.0 / 49
    # Rows are a tenth of a second apart, hence the loose bound of the central difference.
    np.testing.assert_allclose((q[2:] - q[:-2]) / (2 * step), qd[1:-1], atol=0.1)
    np.testing.assert_allclose((qd[2:] - qd[:-2]) / (2 * step), qdd[1:-1], atol=0.5)
