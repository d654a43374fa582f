"""Run by torchrun: `MultiTaskLoss` in two processes against one with the whole batch, replicated and sharded."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import excessmtl

BATCH, STEPS = 16, 24
KINDS = {"a": "classification", "b": "binary", "c": "regression"}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.heads = nn.ModuleDict({"a": nn.Linear(16, 3), "b": nn.Linear(16, 1), "c": nn.Linear(16, 1)})

    def forward(self, x):
        z = self.trunk(x)
        return {name: head(z) for name, head in self.heads.items()}


def replicated(model):
    return DistributedDataParallel(model)


def sharded(model):
    fully_shard(model.trunk)
    fully_shard(model)
    return model


def train(layout, rows, scalar, without=None, **options):
    """All parameters, weights and noise, the state. `without`: a task that this process has no labels of."""
    model = Model()
    wrapped = layout(model)
    criterion = excessmtl.MultiTaskLoss(KINDS, model.trunk, **options)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    random = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(BATCH, 6, generator=random)
        targets = {"a": x[:, :3].argmax(1), "b": (x[:, 3] > 0).float(), "c": x[:, 4:].sum(1)}
        wrong = torch.rand(BATCH, generator=random) < 0.4
        targets["a"][wrong] = torch.randint(3, (BATCH,), generator=random)[wrong]
        mine = {task: target[rows] for task, target in targets.items() if task != without}
        optimiser.zero_grad()
        if scalar:
            criterion(wrapped(x[rows]), mine).backward()
        else:
            criterion.backward(wrapped(x[rows]), mine)
        optimiser.step()
    if dist.get_rank() == 0:  # alone, so it must not wait for the other
        with torch.no_grad():
            criterion.eval()(Model()(x), targets)
    parameters = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    state = [value for value in criterion.state_dict().values() if value.is_floating_point()]
    learned = [criterion.balancer.weights, *(loss.noise for loss in criterion.losses.values())]
    return [torch.cat([part.detach().flatten() for part in parts]) for parts in (parameters, learned, state)]


def alike(tensor):
    gathered = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(gathered, tensor)
    return torch.equal(*gathered)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, failures = dist.get_rank(), []
    mine = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    for scalar in (False, True):
        heads = {"heads": "weighted"} if scalar else {}
        whole = train(lambda model: model, slice(None), False, pool=False, **heads)
        for layout in (replicated, sharded):
            case = f"{layout.__name__} scalar={scalar}"
            found = train(layout, mine, scalar)
            if not all(map(alike, found)):
                failures.append(f"{case}: the processes differ")
            # Not exactly: the frequencies of classes are those of each process's own batch.
            for what, one, other in zip(("parameters", "weights and noise"), found, whole, strict=False):
                if not torch.allclose(one, other, rtol=1e-2, atol=2e-3):
                    failures.append(f"{case}: {what} differ from one process by {(one - other).abs().max():.2g}")
            _, alone, _ = train(layout, mine, scalar, pool=False)
            if torch.allclose(alone, whole[1], rtol=1e-2, atol=2e-3):
                failures.append(f"{case}: half of the batch shows the same, so nothing is tested")
            found = train(layout, mine, scalar, without="b" if rank else None)
            if not (all(map(alike, found)) and found[0].isfinite().all()):
                failures.append(f"{case}: one process without labels of a task harms the others")
    if rank == 0:
        print("\n".join(failures) or "all equal", flush=True)
    dist.barrier()
    # Not sys.exit: tearing down gloo's threads at interpreter exit aborts the process now and then.
    os._exit(bool(failures))


if __name__ == "__main__":
    main()
