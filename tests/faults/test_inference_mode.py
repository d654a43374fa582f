"""Balancers that are made while torch is in inference mode."""

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
