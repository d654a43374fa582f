"""Run by two processes: models sharded by `fully_shard` in several ways, against one process with the whole batch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint
from two_processes_worker import check, check_equal, main, refused

import excessmtl
from excessmtl.distributed import fsdp
from excessmtl.graph.places import Probe

BATCH, STEPS, TASKS = 16, 4, ["a", "b", "c"]


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Checkpointed(Block):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


class Model(nn.Module):
    """The heads: one linear layer, two layers, and one that takes the representation twice."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(Block(6, 16), Checkpointed(16, 40))
        self.heads = nn.ModuleDict(
            {"a": nn.Linear(40, 3), "b": nn.Sequential(Block(40, 5), nn.Linear(5, 1)), "c": nn.Bilinear(40, 40, 1)}
        )

    def forward(self, x):
        z = self.trunk(x)
        return {name: head(z, z) if name == "c" else head(z) for name, head in self.heads.items()}


# ------------------------------------------------------------------ ways to shard it


def heads_alone(model, **options):
    for head in model.heads.values():
        fully_shard(head, **options)


def trunk_and_heads(model):
    fully_shard(model.trunk)
    heads_alone(model)


def whole(model):
    fully_shard(model)


def blocks(model, **options):
    for block in model.trunk:
        fully_shard(block, **options)
    heads_alone(model, **options)
    fully_shard(model, **options)


def heads_as_one_group(model):
    fully_shard(model.trunk)
    fully_shard([*model.heads.values()])
    fully_shard(model)


def half_precision(model):
    blocks(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


EXACT = (heads_alone, trunk_and_heads, whole, heads_as_one_group)


# ------------------------------------------------------------------ training


@dataclass
class Case:
    """One training, to be compared with that of one process."""

    layout: Callable[..., None]
    method: str = "excess"
    options: dict[str, Any] = field(default_factory=dict)
    scalar: bool = False
    tangled: bool = False
    """Whether the losses share nodes above the representation, so that each is passed alone."""
    micro: int = 1
    tolerance: float = 1e-5

    def __str__(self):
        how = [name for name in ("scalar", "tangled") if getattr(self, name)]
        return f"{self.layout.__name__} {self.method} {self.options} {how} micro={self.micro}"

    def alone(self):
        """One process with the whole batch, of an ordinary model."""
        options = {**self.options, "pool": False, **({"heads": "weighted"} if self.scalar else {})}
        return self.train(lambda model: None, options, torch.arange(BATCH), scalar=False)

    def together(self, harm=None):
        """This process with its share of every micro-batch. `harm`: what befalls the last process in one step."""
        rank, world = dist.get_rank(), dist.get_world_size()
        rows = torch.arange(BATCH).view(self.micro, world, -1)[:, rank].flatten()
        harm = harm if rank == world - 1 else None
        return self.train(self.layout, self.options, rows, scalar=self.scalar, harm=harm)

    def train(self, layout, options, rows, *, scalar, harm=None):
        model = Model()
        layout(model)
        balancer = excessmtl.create(self.method, tasks=TASKS, shared=model.trunk, **options)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, batch in enumerate(data()):
            optimiser.zero_grad()
            for part in rows.chunk(self.micro):
                last = part[-1] == rows[-1]
                if isinstance(model, FSDPModule):
                    model.set_requires_gradient_sync(bool(last))
                losses = self.losses(model, [tensor[part] for tensor in batch])
                if harm is not None and step == 1:
                    losses["b"] = losses["b"] * torch.nan
                mask = {"b": torch.zeros(len(part)).bool()} if harm == "no labels" and step == 1 else None
                if scalar:
                    balancer(losses, mask=mask, accumulate=not last).backward()
                else:
                    balancer.backward(losses, mask=mask, accumulate=not last)
            if len(rows) < BATCH:
                average_what_is_replicated(model)
            optimiser.step()
        return balancer, everything(model)

    def losses(self, model, batch):
        x, label, one, two = batch
        outputs = {task: output.float() for task, output in model(x).items()}
        b, c = mse_loss(outputs["b"], one), mse_loss(outputs["c"], two) / 2
        found = {"a": cross_entropy(outputs["a"], label), "b": b, "c": c + b / 2 if self.tangled else c}
        return {task: loss / self.micro for task, loss in found.items()}


def data():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(BATCH, 6, generator=generator)
        label = torch.randint(0, 3, (BATCH,), generator=generator)
        yield x, label, torch.randn(BATCH, 1, generator=generator), torch.randn(BATCH, 1, generator=generator)


def average_what_is_replicated(model):
    for parameter in model.parameters():
        if not isinstance(parameter, DTensor):
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def everything(model):
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return torch.cat([parameter.detach().flatten() for parameter in whole])


# ------------------------------------------------------------------ what is compared


def looks_at_parameters(name):
    return excessmtl.create(name, tasks=TASKS, shared=nn.Linear(2, 2)).rule.probe in (Probe.SHARED, Probe.LAYER)


# The steps of GradDrop depend on the signs of each process's own batch.
WORKING = [(name, {}) for name in excessmtl.list_methods() if name != "graddrop" and not looks_at_parameters(name)]
WORKING += [(name, {"probe": "representation"}) for name in ("mgda", "imtl")]
WORKING += [("excess", {"estimator": "paper", "probe": "representation"})]
REFUSED = [(name, {}) for name in excessmtl.list_methods() if looks_at_parameters(name)]
REFUSED += [("excess", {"estimator": "paper"})]

CASES = [Case(blocks, name, options, scalar=bool(place % 2)) for place, (name, options) in enumerate(WORKING)]
CASES += [Case(layout, scalar=scalar) for layout in EXACT for scalar in (False, True)]
CASES += [Case(layout, tangled=True) for layout in (whole, blocks)]
CASES += [Case(layout, micro=2, scalar=scalar) for layout in (whole, blocks) for scalar in (False, True)]
CASES += [Case(half_precision, tolerance=1e-3), Case(half_precision, "uniform", tolerance=1e-3)]

ALONE = {}
"""What one process makes of each case, trained before anything is sharded."""


def the_older_form_is_refused():
    model = Model()
    trunk = model.trunk
    sharded = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    losses = Case(whole).losses(sharded, next(data()))
    for name in ("uniform", "imtl"):
        balancer = excessmtl.create(name, tasks=TASKS, shared=trunk)
        refused(name, "FullyShardedDataParallel", lambda b=balancer: b.backward(losses))


def nothing_is_sharded_yet():
    ALONE.update({str(case): case.alone() for case in CASES})
    check("something is found to be sharded", not fsdp.in_use())


def as_one_process(case):
    balancer, parameters = case.together()
    alone, parameters_alone = ALONE[str(case)]
    check_equal("weights", balancer.weights, alone.weights, rtol=1e-3, atol=case.tolerance)
    check_equal("parameters", parameters, parameters_alone, rtol=1e-3, atol=case.tolerance)
    # What a process counts for itself is not pooled; in these cases there is nothing to count.
    check_equal("state", torch.cat([value.double().flatten() for value in balancer.state_dict().values()]))


def harm_by_one_process(harm):
    for case in (Case(blocks, "uniform"), Case(blocks), Case(whole), Case(trunk_and_heads, scalar=True)):
        balancer, parameters = case.together(harm)
        check_equal(f"{case}: parameters", parameters)
        check_equal(f"{case}: weights", balancer.weights)


def what_is_refused_leaves_the_model_as_it_was():
    """What would go wrong must be said, with no gradient written and the model as fit for training as before."""
    model, batch = Model(), next(data())
    blocks(model)
    listed = excessmtl.create("uniform", tasks=TASKS, shared=list(model.trunk.parameters()))
    working = excessmtl.create("uniform", tasks=TASKS, shared=model.trunk)
    losses = Case(blocks).losses(model, batch)
    for name, options in REFUSED:
        balancer = excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)
        refused(f"{name} {options}", "fully_shard", lambda b=balancer: b.backward(losses))
        refused(f"{name} {options}", "fully_shard", lambda b=balancer: b(losses))
    refused("a list of parameters", "fully_shard", lambda: listed.backward(losses))
    refused("stationarity", "fully_shard", lambda: excessmtl.pareto_stationarity(losses, model.trunk))
    check("no gradient is written", all(parameter.grad is None for parameter in model.parameters()))
    working.backward(losses)
    check("the model can be trained", all(parameter.grad is not None for parameter in model.parameters()))


FIRST = (the_older_form_is_refused, nothing_is_sharded_yet)
SCENARIOS = {one.__name__: one for one in FIRST} | {str(case): partial(as_one_process, case) for case in CASES}
SCENARIOS |= {f"{harm} in one process": partial(harm_by_one_process, harm) for harm in ("not a number", "no labels")}
SCENARIOS |= {what_is_refused_leaves_the_model_as_it_was.__name__: what_is_refused_leaves_the_model_as_it_was}

if __name__ == "__main__":
    main(SCENARIOS)
