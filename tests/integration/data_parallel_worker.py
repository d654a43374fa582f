"""Run by torchrun: every method under DistributedDataParallel, against one process with the whole batch."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel

import excessmtl

BATCH, STEPS = 16, 4
# The steps of GradDrop depend on the signs of each process's own batch.
METHODS = [(name, {}) for name in excessmtl.list_methods() if name != "graddrop"]
METHODS += [("excess", {"estimator": "paper"}), ("excess", {"estimator": "paper", "probe": "representation"})]
METHODS += [("mgda", {"probe": "representation"})]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 40), nn.Tanh())
        self.heads = nn.ModuleDict({"a": nn.Linear(40, 3), "b": nn.Linear(40, 1)})

    def forward(self, x):
        z = self.trunk(x)
        return {name: head(z) for name, head in self.heads.items()}


def losses(outputs, label, value):
    return {"a": cross_entropy(outputs["a"], label), "b": mse_loss(outputs["b"], value)}


def train(model, trunk, name, options, rows, scalar, bad=False):
    balancer = excessmtl.create(name, tasks=["a", "b"], shared=trunk, **options)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        x = torch.randn(BATCH, 6, generator=generator)
        label = torch.randint(0, 3, (BATCH,), generator=generator)
        value = torch.randn(BATCH, 1, generator=generator)
        optimiser.zero_grad()
        batch = losses(model(x[rows]), label[rows], value[rows])
        if bad and step == 1:
            batch["b"] = batch["b"] * torch.nan
        if scalar:
            balancer(batch).backward()
        else:
            balancer.backward(batch)
        optimiser.step()
    return balancer.weights, torch.cat([p.detach().flatten() for p in model.parameters()])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    failures = []
    for name, options in METHODS:
        for scalar in (False, True):
            model = Model()
            whole = copy.deepcopy(model)
            heads = {"heads": "weighted"} if scalar else {}
            expected = train(whole, whole.trunk, name, {**options, **heads, "pool": False}, slice(None), False)
            parallel = DistributedDataParallel(model)
            found = train(parallel, model.trunk, name, options, mine, scalar)
            for what, one, other in zip(("weights", "parameters"), found, expected, strict=True):
                gathered = [torch.empty_like(one) for _ in range(world)]
                dist.all_gather(gathered, one)
                if not torch.equal(gathered[0], gathered[1]):
                    failures.append(f"{name} {options} scalar={scalar}: {what} differ between processes")
                if not torch.allclose(one, other, rtol=1e-3, atol=1e-5):
                    gap = (one - other).abs().max().item()
                    failures.append(f"{name} {options} scalar={scalar}: {what} differ from one process by {gap:.2g}")
    for name, options in (("uniform", {}), ("excess", {}), ("excess", {"estimator": "paper"}), ("mgda", {})):
        for as_list in (False, True) if (name, options) != ("excess", {}) else (False,):
            for scalar in (False, True):
                model = Model()
                trunk = list(model.trunk.parameters()) if as_list else model.trunk
                parallel = DistributedDataParallel(model)
                _, found = train(parallel, trunk, name, options, mine, scalar, bad=rank == 1)
                gathered = [torch.empty_like(found) for _ in range(world)]
                dist.all_gather(gathered, found)
                if not (torch.equal(gathered[0], gathered[1]) and found.isfinite().all()):
                    failures.append(f"{name} {options} list={as_list} scalar={scalar}: a NaN in one process harms")
    if rank == 0:
        print("\n".join(failures) or "all equal", flush=True)
    dist.barrier()
    # Not sys.exit: tearing down gloo's threads at interpreter exit aborts the process now and then.
    os._exit(bool(failures))


if __name__ == "__main__":
    main()
