"""The functional Adam is torch's, entry by entry."""

import torch

from excessmtl.solvers.adam import adam_state, adam_step


def test_it_is_torch_adam():
    start, goal = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.0, 1.0, 0.5])
    parameter = torch.nn.Parameter(start.clone())
    optimiser = torch.optim.Adam([parameter], lr=0.025)
    value, state, ok = start, adam_state(3), torch.ones(3, dtype=torch.bool)
    for _ in range(50):
        optimiser.zero_grad()
        parameter.grad = (parameter.detach() - goal) ** 3
        value, state = adam_step(value, (value - goal) ** 3, state, ok, 0.025)
        optimiser.step()
        torch.testing.assert_close(value, parameter.detach())


def test_an_entry_left_out_is_bit_identical_and_resumes_as_if_nothing_had_been():
    torch.manual_seed(0)
    gradients = torch.randn(6, 2)
    everyone, second_only = torch.tensor([True, True]), torch.tensor([False, True])
    value, state = torch.zeros(2), adam_state(2)
    alone, alone_state = torch.zeros(1), adam_state(1)
    for step, gradient in enumerate(gradients):
        before, before_state = value, state
        ok = second_only if step in (0, 3) else everyone
        value, state = adam_step(value, gradient, state, ok, 0.1)
        if step in (0, 3):
            assert value[0] == before[0]
            assert all(state[name][0] == before_state[name][0] for name in state)
        else:
            alone, alone_state = adam_step(alone, gradient[:1], alone_state, everyone[:1], 0.1)
    assert torch.equal(value[:1], alone)
