"""Balancers that are made or used while torch is in inference mode."""

import pytest
import torch
from torch import nn

import excessmtl


@pytest.mark.parametrize("method", ["excess", "mgda", "groupdro", "uw"])
def test_a_balancer_made_in_inference_mode_takes_steps(method: str) -> None:
    encoder, heads = nn.Linear(4, 6), nn.ModuleDict({"a": nn.Linear(6, 1), "b": nn.Linear(6, 1)})
    with torch.inference_mode():
        balancer = excessmtl.create(method, tasks=list(heads), shared=encoder)
    for _ in range(2):
        z = encoder(torch.randn(8, 4))
        balancer.backward({task: head(z).square().mean() for task, head in heads.items()})
    assert balancer.steps == 2
    assert encoder.weight.grad is not None


@pytest.mark.parametrize("matrix", [False, True], ids=["dict", "matrix"])
@pytest.mark.parametrize("scalar", [False, True], ids=["backward", "scalar"])
@pytest.mark.parametrize("method", ["excess", "mgda", "uniform"])
def test_a_step_in_inference_mode_is_refused_in_one_sentence(method: str, scalar: bool, matrix: bool) -> None:
    encoder, head = nn.Linear(4, 6), nn.Linear(6, 2)
    balancer = excessmtl.create(method, tasks=["a", "b"], shared=encoder)
    for forward_inside in (False, True):
        with torch.inference_mode(forward_inside):
            squares = head(encoder(torch.randn(8, 4))).square()
            losses = squares if matrix else dict(zip("ab", squares.mean(0).unbind(), strict=True))
        with torch.inference_mode(), pytest.raises(ValueError, match=r"torch\.inference_mode\(\)"):
            balancer(losses) if scalar else balancer.backward(losses)
    balancer.eval()
    with torch.inference_mode():
        assert balancer(losses) > 0
