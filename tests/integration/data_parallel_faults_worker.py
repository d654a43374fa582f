"""Run by two processes: unusual uses of DistributedDataParallel, against plain PyTorch or one process with all data.

Arguments: the rank, a folder of the two processes, and the names of the scenarios. Each that is well is noted in the
folder; the first that raises an error ends the process, since nothing can be sent between the two any more.
"""

import copy
import json
import os
import sys
import traceback
import warnings
from datetime import timedelta
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import excessmtl

BATCH, STEPS, TASKS = 16, 4, ["a", "b"]
EXCESS = [
    ("excess", {}),
    ("excess", {"estimator": "paper"}),
    ("excess", {"estimator": "paper", "probe": "representation"}),
]
EVERY_METHOD = EXCESS + [(name, {}) for name in excessmtl.list_methods() if name != "excess"]
A_FEW = [("uniform", {}), ("excess", {}), ("mgda", {}), ("rlw", {})]


class Model(nn.Module):
    """A trunk and two heads."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 40), nn.Tanh())
        self.heads = nn.ModuleDict({"a": nn.Linear(40, 3), "b": nn.Linear(40, 1)})

    def forward(self, x):
        z = self.trunk(x)
        return {task: head(z) for task, head in self.heads.items()}


def batches(rows, count=STEPS):
    """The part of each batch that one process sees."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        x, *targets = (torch.randn(BATCH, width, generator=generator)[rows] for width in (6, 3, 1))
        yield x, dict(zip(TASKS, targets, strict=True))


def step_by(method, trunk, form):
    """What takes the place of `loss.backward()`; the form "plain" is the mean of the losses by PyTorch alone."""
    if form == "plain":
        return lambda losses: (sum(loss for loss in losses.values() if loss is not None) / len(TASKS)).backward()
    balancer = excessmtl.create(method[0], tasks=TASKS, shared=trunk, heads="weighted", scale=1.0, **method[1])
    return balancer.backward if form == "backward" else lambda losses: balancer(losses).backward()


def train(network, trunk, method, form, data, without_b=None):
    """All parameters after some steps; in the step `without_b` the task `b` has no label."""
    take_step = step_by(method, trunk, form)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for number, (x, targets) in enumerate(data):
        optimizer.zero_grad()
        outputs = network(x)
        losses = {task: mse_loss(outputs[task], targets[task]) for task in TASKS}
        if number == without_b:
            losses["b"] = None
        take_step(losses)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


class Unequal(Exception):
    """Raised by both processes or by none, so that they can go on together."""


def check_equal(what, found, expected=None):
    """The replicas are equal, and as expected."""
    gathered = [torch.empty_like(found) for _ in range(2)]
    dist.all_gather(gathered, found)
    if not torch.equal(*gathered):
        raise Unequal(f"{what}: the replicas differ")
    gap = torch.zeros(()) if expected is None else (found - expected).abs().max()
    dist.all_reduce(gap, dist.ReduceOp.MAX)
    if not gap < 1e-4:
        raise Unequal(f"{what}: parameters differ by {gap.item():.2g} from what they should be")


def static_graph(form, mine):
    """Gradients are averaged; or a ValueError says that they are not."""
    for method in EVERY_METHOD:
        model = Model()
        # The steps of GradDrop depend on the signs of each process's own batch.
        whole = copy.deepcopy(model) if method[0] != "graddrop" else None
        try:
            parallel = DistributedDataParallel(model, static_graph=True)
            found = train(parallel, model.trunk, method, form, batches(mine))
        except ValueError as error:
            if "static_graph" not in str(error):
                raise
            continue
        expected = None if whole is None else trained_alone(whole, method, form)
        check_equal(f"{method} {form}", found, expected)


def trained_alone(model, method, form):
    options = {**method[1], "pool": False}
    return train(model, model.trunk, (method[0], options), form, batches(slice(None)))


def none_on_one_rank(form, mine):
    """As plain PyTorch with `find_unused_parameters=True`: training goes on."""
    rank = dist.get_rank()
    for method in A_FEW:
        found = {}
        for way in ("plain", form) if method[0] == "uniform" else (form,):
            model = Model()
            parallel = DistributedDataParallel(model, find_unused_parameters=True)
            without_b = 1 if rank == 1 else None
            found[way] = train(parallel, model.trunk, method, way, batches(mine), without_b)
        check_equal(f"{method} {form}", found[form], found.get("plain"))


def uneven_inputs(form, mine):
    """As plain PyTorch inside `ddp.join()`: the process that has more batches finishes them; or a clear refusal."""
    rank = dist.get_rank()
    for method in A_FEW:
        found = {}
        for way in ("plain", form) if method[0] == "uniform" else (form,):
            model = Model()
            parallel = DistributedDataParallel(model)
            try:
                with parallel.join():
                    found[way] = train(parallel, model.trunk, method, way, batches(mine, STEPS + 2 * rank))
            except ValueError as error:
                if "join" not in str(error):
                    raise
                return
        replica = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        check_equal(f"{method} {form}", replica, found.get("plain") if rank == 1 else None)


def zero_at_first():
    calls = count()
    return lambda gradient: gradient * (next(calls) >= 10)


def not_averaged(form, mine):
    """One warning, in the first process, if nobody averages gradients; none if somebody does or nobody is to."""
    expected = {"bare": 1, "starts at step 10": 1, "wrapped": 0, "on their own": 0}
    for method in A_FEW:
        for case, wanted in expected.items():
            model = Model()
            network = DistributedDataParallel(model) if case == "wrapped" else model
            options = {**method[1], "pool": case != "on their own"}
            for parameter in model.trunk.parameters() if case == "starts at step 10" else ():
                parameter.register_hook(zero_at_first())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                train(network, model.trunk, (method[0], options), form, batches(mine, 22))
            found = sum("differ between the processes" in str(warning.message) for warning in caught)
            wrong = torch.tensor(float(found != (wanted if dist.get_rank() == 0 else 0)))
            dist.all_reduce(wrong)
            if wrong:
                raise Unequal(f"{method} {form}, {case}: {found} warnings in process {dist.get_rank()}")


SCENARIOS = {
    f"{scenario.__name__}-{form}": (scenario, form)
    for scenario in (static_graph, none_on_one_rank, uneven_inputs, not_averaged)
    for form in ("backward", "scalar")
}


def main(rank, folder, names):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=20)
    )
    mine = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    for name in names:
        scenario, form = SCENARIOS[name]
        note = Path(folder, f"{name}-{rank}.json")
        try:
            scenario(form, mine)
            note.write_text(json.dumps("well"))
        except Unequal as error:
            note.write_text(json.dumps(str(error)))
        except Exception:
            note.write_text(json.dumps(traceback.format_exc()))
            break
    # Not sys.exit: tearing down gloo's threads at interpreter exit aborts the process now and then.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
