import numpy as np
import pytest
import torch
from learning import learned_outputs

from excessmtl.lab.data.base import registry
from excessmtl.lab.data.kinds import regression
from excessmtl.lab.data.simulated_arm import SIZES, load, motions


def test_it_is_registered_and_small_by_default() -> None:
    bench = registry()["simulated-arm"].load(None, 0)
    assert [task.name for task in bench.tasks] == [f"joint_{i}" for i in range(1, 8)]
    assert bench.noisy_tasks == ("joint_1", "joint_2")
    for split, rows in zip((bench.train, bench.validation, bench.test), SIZES["small"], strict=True):
        assert isinstance(split.inputs, torch.Tensor)
        assert split.inputs.shape == (rows, 21)
        assert all(target.shape == (rows, 1) for target in split.targets.values())


def test_training_data_is_standardised_and_the_test_data_with_it() -> None:
    bench = load(None, 0)
    for x in (bench.train.inputs, *bench.train.targets.values()):
        assert isinstance(x, torch.Tensor)
        torch.testing.assert_close(x.mean(0), torch.zeros(x.shape[1]), atol=1e-5, rtol=0)
        torch.testing.assert_close(x.std(0), torch.ones(x.shape[1]), atol=1e-3, rtol=0)
    for y in bench.test.targets.values():
        assert y.std().item() == pytest.approx(1, abs=0.3)
        assert y.mean().abs() > 1e-5


def test_the_seed_decides() -> None:
    one, same, other = load(None, 5), load(None, 5), load(None, 6)
    assert torch.equal(torch.as_tensor(one.train.inputs), torch.as_tensor(same.train.inputs))
    assert torch.equal(one.test.targets["joint_3"], same.test.targets["joint_3"])
    assert not torch.equal(torch.as_tensor(one.train.inputs), torch.as_tensor(other.train.inputs))


def test_paper_size() -> None:
    bench = load(None, 0, size="paper")
    assert (bench.train.length("joint_1"), bench.test.length("joint_1")) == (44_484, 4_449)


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size is 'large': choose one of small, paper"):
        load(None, 0, size="large")


def test_velocities_and_accelerations_belong_to_the_positions() -> None:
    q, qd, qdd = motions(50, np.random.default_rng(0))
    step = 5.0 / 49
    # Rows are a tenth of a second apart, hence the loose bound of the central difference.
    np.testing.assert_allclose((q[2:] - q[:-2]) / (2 * step), qd[1:-1], atol=0.1)
    np.testing.assert_allclose((qd[2:] - qd[:-2]) / (2 * step), qdd[1:-1], atol=0.5)


def test_a_network_learns_every_joint() -> None:
    bench = load(None, 0)
    outputs = learned_outputs(bench, epochs=8, learning_rate=bench.recipe.learning_rate)
    for name, y in bench.test.targets.items():
        trivial = y.square().mean()
        assert regression.loss(outputs[name], y) < 0.3 * trivial, name
