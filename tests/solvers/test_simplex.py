"""The nearest point of the simplex."""

import pytest
import torch

from excessmtl.solvers.simplex import project


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_the_conditions_of_the_nearest_point(size):
    """w = max(v - t, 0) for one t, with the sum one."""
    for seed in range(5):
        torch.manual_seed(seed)
        values = 3 * torch.randn(size, dtype=torch.float64)
        found = project(values, torch.ones(size, dtype=torch.bool))
        assert found.sum() == pytest.approx(1)
        inside = found > 0
        threshold = (values - found)[inside]
        torch.testing.assert_close(threshold, threshold[:1].expand_as(threshold))
        assert (values[~inside] <= threshold[0] + 1e-9).all()


def test_tasks_that_are_not_ok_get_nothing_and_large_numbers_do_no_harm():
    values = torch.tensor([5.0, 0.2, 0.1])
    assert project(values, torch.tensor([False, True, True])).tolist() == pytest.approx([0, 0.55, 0.45])
    assert project(torch.tensor([-1e30, 1e30, 1e30]), torch.ones(3, dtype=torch.bool)).tolist() == [0, 0.5, 0.5]
    assert project(values, torch.zeros(3, dtype=torch.bool)).tolist() == [0, 0, 0]
