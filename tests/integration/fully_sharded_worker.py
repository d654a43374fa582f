"""Run by torchrun: models sharded by `fully_shard` in several ways, against one process with the whole batch."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

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
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    blocks(model, mp_policy=policy)


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
    """Whether the losses share nodes above the representation, so that each is walked alone."""
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
    rule = excessmtl.create(name, tasks=TASKS, shared=nn.Linear(2, 2)).rule
    return rule.probe in (Probe.SHARED, Probe.LAYER)


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


def alike(tensor):
    """Whether all processes have the same."""
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor)
    return all(torch.equal(tensor, other) for other in gathered)


def state(balancer):
    tensors = [value for value in balancer.state_dict().values() if isinstance(value, torch.Tensor)]
    return torch.cat([tensor.double().flatten() for tensor in tensors])


def differences(case, expected):
    balancer, parameters = case.together()
    alone, parameters_alone = expected
    for what, one, other in (
        ("weights", balancer.weights, alone.weights),
        ("parameters", parameters, parameters_alone),
    ):
        if not alike(one):
            yield f"{case}: {what} differ between processes"
        if not torch.allclose(one, other, rtol=1e-3, atol=case.tolerance):
            yield f"{case}: {what} differ from one process by {(one - other).abs().max().item():.2g}"
    # What a process counts for itself is not pooled; in these cases there is nothing to count.
    if not alike(state(balancer)):
        yield f"{case}: states differ between processes"


def harm_by_one_process():
    for case in (Case(blocks, "uniform"), Case(blocks), Case(whole), Case(trunk_and_heads, scalar=True)):
        for harm in ("not a number", "no labels"):
            balancer, parameters = case.together(harm)
            if not (alike(parameters) and alike(balancer.weights) and parameters.isfinite().all()):
                yield f"{case}: {harm} in one process harms the others"


def refused(what, expected, action):
    try:
        action()
    except ValueError as error:
        if expected not in str(error):
            yield f"{what}: refused, but not for {expected!r}: {error}"
    else:
        yield f"{what}: not refused"


def silence():
    """What would go wrong must be said, with no gradient written and the model as fit for training as before."""
    model, batch = Model(), next(data())
    blocks(model)
    listed = excessmtl.create("uniform", tasks=TASKS, shared=list(model.trunk.parameters()))
    working = excessmtl.create("uniform", tasks=TASKS, shared=model.trunk)
    losses = Case(blocks).losses(model, batch)
    for name, options in REFUSED:
        balancer = excessmtl.create(name, tasks=TASKS, shared=model.trunk, **options)
        yield from refused(f"{name} {options}", "fully_shard", lambda b=balancer: b.backward(losses))
        yield from refused(f"{name} {options}", "fully_shard", lambda b=balancer: b(losses))
    yield from refused("a list of parameters", "fully_shard", lambda: listed.backward(losses))
    yield from refused("stationarity", "fully_shard", lambda: excessmtl.pareto_stationarity(losses, model.trunk))
    if any(parameter.grad is not None for parameter in model.parameters()):
        yield "a gradient was written by something that was refused"
    working.backward(losses)
    if any(parameter.grad is None for parameter in model.parameters()):
        yield "a model cannot be trained after something was refused"


def silence_about_the_older_form():
    model = Model()
    trunk = model.trunk
    losses = Case(whole).losses(
        FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True), next(data())
    )
    for name in ("uniform", "imtl"):
        balancer = excessmtl.create(name, tasks=TASKS, shared=trunk)
        yield from refused(name, "FullyShardedDataParallel", lambda b=balancer: b.backward(losses))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    failures = [*silence_about_the_older_form()]
    expected = [case.alone() for case in CASES]
    if fsdp.in_use():
        failures.append("nothing has been sharded yet, but something is found to be")
    for case, alone in zip(CASES, expected, strict=True):
        failures += differences(case, alone)
    failures += [*harm_by_one_process(), *silence()]
    if dist.get_rank() == 0:
        print("\n".join(failures) or f"all {len(CASES)} equal", flush=True)
    dist.barrier()
    # Not sys.exit: tearing down gloo's threads at interpreter exit aborts the process now and then.
    os._exit(bool(failures))


if __name__ == "__main__":
    main()
