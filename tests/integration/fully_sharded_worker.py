"""Run by torchrun: models sharded by `fully_shard` in several ways, against one process with the whole batch."""

import copy
import os
import sys
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy, mse_loss

import excessmtl

BATCH, STEPS, TASKS = 16, 4, ["a", "b", "c"]


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Model(nn.Module):
    """The heads: one linear layer, two layers, and one that takes the representation twice."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(Block(6, 16), Block(16, 40))
        self.heads = nn.ModuleDict(
            {"a": nn.Linear(40, 3), "b": nn.Sequential(Block(40, 5), nn.Linear(5, 1)), "c": nn.Bilinear(40, 40, 1)}
        )

    def forward(self, x):
        z = self.trunk(x)
        return {name: head(z, z) if name == "c" else head(z) for name, head in self.heads.items()}


# ------------------------------------------------------------------ ways to shard it


def trunk_alone(model, **options):
    fully_shard(model.trunk, **options)


def heads_alone(model, **options):
    for head in model.heads.values():
        fully_shard(head, **options)


def trunk_and_heads(model, **options):
    trunk_alone(model, **options)
    heads_alone(model, **options)


def whole(model, **options):
    fully_shard(model, **options)


def blocks(model, **options):
    for block in model.trunk:
        fully_shard(block, **options)
    heads_alone(model, **options)
    fully_shard(model, **options)


def blocks_kept(model):
    blocks(model, reshard_after_forward=False)


def blocks_freed(model):
    blocks(model, reshard_after_forward=True)


def heads_as_one_group(model):
    fully_shard(model.trunk)
    fully_shard([*model.heads.values()])
    fully_shard(model)


def trunk_within(model):
    fully_shard(model.trunk)
    fully_shard(model)


LAYOUTS = [
    trunk_alone,
    heads_alone,
    trunk_and_heads,
    whole,
    trunk_within,
    blocks_kept,
    blocks_freed,
    heads_as_one_group,
]


# ------------------------------------------------------------------ training


def data():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(BATCH, 6, generator=generator)
        label = torch.randint(0, 3, (BATCH,), generator=generator)
        yield x, label, torch.randn(BATCH, 1, generator=generator), torch.randn(BATCH, 1, generator=generator)


def losses(outputs, batch):
    _, label, one, two = batch
    return {
        "a": cross_entropy(outputs["a"].float(), label),
        "b": mse_loss(outputs["b"].float(), one),
        "c": 3 * mse_loss(outputs["c"].float(), two),
    }


def average_what_is_replicated(model):
    for parameter in model.parameters():
        if dist.get_world_size() > 1 and not isinstance(parameter, DTensor) and parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def full(parameter):
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def parameters_of(model):
    return torch.cat([full(parameter).detach().flatten() for parameter in model.parameters()])


def train(model, name, options, rows, *, scalar=False, bad=False, micro=1, alone=False):
    balancer = excessmtl.create(name, tasks=TASKS, shared=model.trunk, pool=not alone, **options)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, batch in enumerate(data()):
        optimiser.zero_grad()
        mine = [part[rows] for part in batch]
        for number, part in enumerate(zip(*(tensor.chunk(micro) for tensor in mine), strict=True)):
            last = number == micro - 1
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last)
            found = {task: loss / micro for task, loss in losses(model(part[0]), part).items()}
            if bad and step == 1:
                found["b"] = found["b"] * torch.nan
            if scalar:
                balancer(found, accumulate=not last).backward()
            else:
                balancer.backward(found, accumulate=not last)
        if not alone:
            average_what_is_replicated(model)
        optimiser.step()
    return balancer, balancer.weights, parameters_of(model)
