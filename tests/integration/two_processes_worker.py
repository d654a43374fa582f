"""Run by two processes: DistributedDataParallel and pooled losses, against plain PyTorch or one process with all data.

Arguments: the rank and a folder of the two processes. Every scenario is noted in the folder, as "well" or by what is
wrong; the first that raises another error ends the process, since nothing can be sent between the two any more.
`fully_sharded_worker.py` has scenarios of its own.
"""

import copy
import json
import os
import sys
import traceback
import warnings
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))
import excessmtl
from excessmtl.losses import RobustBCEWithLogits, RobustCrossEntropy, RobustMSELoss, by_task
from losses.test_robust_loss_faults import batches as noisy_batches
from models import MultiTask

BATCH, STEPS, TASKS = 16, 3, ["a", "b"]
PAPER = {"estimator": "paper"}
# The steps of GradDrop depend on the signs of each process's own batch.
EVERY_METHOD = [(name, {}) for name in excessmtl.list_methods() if name != "graddrop"]
EVERY_METHOD += [("excess", PAPER), ("excess", {**PAPER, "probe": "representation"})]
EVERY_METHOD += [("mgda", {"probe": "representation"})]
A_FEW = [("uniform", {}), ("excess", {}), ("mgda", {}), ("rlw", {})]
WITH_A_LIST = [("uniform", {}), ("excess", PAPER), ("mgda", {})]


class Model(MultiTask):
    def __init__(self):
        torch.manual_seed(0)
        trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 40), nn.Tanh())
        super().__init__(trunk, {"a": nn.Linear(40, 3), "b": nn.Linear(40, 1)})


def mine():
    """The rows of a batch that this process sees."""
    return slice(dist.get_rank() * BATCH // 2, (dist.get_rank() + 1) * BATCH // 2)


def batches(rows, count=STEPS):
    """The part of each batch that one process sees."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        x, *targets = (torch.randn(BATCH, width, generator=generator)[rows] for width in (6, 3, 1))
        yield x, dict(zip(TASKS, targets, strict=True))


def step_by(method, shared, form):
    """What takes the place of `loss.backward()`; the form "plain" is the mean of the losses by PyTorch alone."""
    if form == "plain":
        return lambda losses: (sum(loss for loss in losses.values() if loss is not None) / len(TASKS)).backward()
    balancer = excessmtl.create(method[0], tasks=TASKS, shared=shared, heads="weighted", scale=1.0, **method[1])
    return balancer.backward if form == "backward" else lambda losses: balancer(losses).backward()


def train(network, shared, method, form, data, harm=None):
    """All parameters after some steps; in the second of them `harm` takes the loss of `b` and gives another."""
    take_step = step_by(method, shared, form)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for number, (x, targets) in enumerate(data):
        optimizer.zero_grad()
        outputs = network(x)
        losses = {task: mse_loss(outputs[task], targets[task]) for task in TASKS}
        if harm and number == 1:
            losses["b"] = harm(losses["b"])
        take_step(losses)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


class Wrong(Exception):
    """Raised by both processes or by none, so that they can go on together."""


def check(what, fine):
    wrong = torch.tensor(float(not fine))
    dist.all_reduce(wrong)
    if wrong:
        raise Wrong(what)


def check_equal(what, found, expected=None, rtol=0.0, atol=1e-4):
    """The replicas are equal and finite, and as expected."""
    both = [torch.empty_like(found) for _ in range(2)]
    dist.all_gather(both, found)
    check(f"{what}: the replicas differ", torch.equal(*both))
    expected = found if expected is None else expected
    gap = (found - expected).abs().max()
    fine = found.isfinite().all() and torch.allclose(found, expected, rtol, atol)
    check(f"{what}: {gap.item():.2g} from what it should be", fine)


def every_method(form):
    """Two processes with half a batch each train as one with all of it."""
    for name, options in EVERY_METHOD if form == "backward" else [*A_FEW, ("excess", PAPER)]:
        model = Model()
        whole = copy.deepcopy(model)
        expected = train(whole, whole.trunk, (name, {**options, "pool": False}), "backward", batches(slice(None)))
        found = train(DistributedDataParallel(model), model.trunk, (name, options), form, batches(mine()))
        check_equal(f"{name} {options}", found, expected)


def nan_in_one_process(form):
    harm = (lambda loss: loss * torch.nan) if dist.get_rank() == 1 else None
    for method in (*A_FEW, *WITH_A_LIST):
        model = Model()
        shared = list(model.trunk.parameters()) if method in WITH_A_LIST else model.trunk
        check_equal(str(method), train(DistributedDataParallel(model), shared, method, form, batches(mine()), harm))


def no_label_in_one_process(form):
    """As plain PyTorch with `find_unused_parameters=True`: training goes on."""
    harm = (lambda loss: None) if dist.get_rank() == 1 else None
    for method in A_FEW:
        computed = {}
        for way in ("plain", form) if method[0] == "uniform" else (form,):
            model = Model()
            parallel = DistributedDataParallel(model, find_unused_parameters=True)
            computed[way] = train(parallel, model.trunk, method, way, batches(mine()), harm)
        check_equal(str(method), computed[form], computed.get("plain"))


def mean_loss_of_the_processes_with_a_label():
    rank, parameter = dist.get_rank(), nn.Parameter(torch.ones(()))
    balancer = excessmtl.create("groupdro", tasks=TASKS, shared=[parameter], step_size=1.0)
    balancer.backward({"a": (1 + rank) * parameter, "b": 3 * parameter if rank == 0 else None})
    check_equal("weights", balancer.weights, torch.tensor([1.5, 3.0]).softmax(0))


def refused(what, word, call):
    try:
        call()
    except ValueError as error:
        said = str(error)
    else:
        said = "nothing"
    check(f"{what}: {said}", word in said)


def static_graph(form):
    for method in A_FEW:
        model = Model()
        parallel = DistributedDataParallel(model, static_graph=True)
        refused(str(method), "static_graph", partial(train, parallel, model.trunk, method, form, batches(mine())))


def uneven_inputs(form):
    """Inside of `ddp.join()`."""
    for method in A_FEW:
        model = Model()
        parallel = DistributedDataParallel(model)

        def joined(parallel=parallel, model=model, method=method):
            with parallel.join():
                train(parallel, model.trunk, method, form, batches(mine(), STEPS + 2 * dist.get_rank()))

        refused(str(method), "join", joined)


def zero_at_first():
    calls = count()
    return lambda gradient: gradient * (next(calls) >= 10)


def not_averaged(form):
    """One warning, in the first process, if nobody averages gradients; none if somebody does or nobody is to."""
    expected = {"bare": 1, "starts at step 10": 1, "wrapped": 0, "on their own": 0}
    for method in A_FEW[:2] if form == "backward" else A_FEW[:1]:
        for case, wanted in expected.items():
            model = Model()
            network = DistributedDataParallel(model) if case == "wrapped" else model
            options = {**method[1], "pool": case != "on their own"}
            for parameter in model.trunk.parameters() if case == "starts at step 10" else ():
                parameter.register_hook(zero_at_first())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                train(network, model.trunk, (method[0], options), form, batches(mine(), 22))
            told = sum("differ between the processes" in str(warning.message) for warning in caught)
            check(f"{method}, {case}: {told} warnings", told == (wanted if dist.get_rank() == 0 else 0))


# ------------------------------------------------------------------ the robust losses

MISSING = {RobustCrossEntropy: -100, RobustBCEWithLogits: torch.nan, RobustMSELoss: torch.nan}

NOISE = torch.tensor([0.05, 0.55]).repeat_interleave(32)
"""The share of wrong labels of each sample: nearly all of them are in the second half of a batch."""


def learned(make, rows, rank, **options):
    """The state after all batches. Some have no label in one process or in both, some are broken in one."""
    loss = make(**options)
    for step, (output, target) in enumerate(noisy_batches(make, 130, noise=NOISE)):
        if step % 7 == 3:
            target[:32] = MISSING[make]
        if step % 11 == 5:
            target[:] = MISSING[make]
        if step % 13 == 6:
            output[40] = torch.nan
        loss(output[rows].requires_grad_(), target[rows])
    if rank == 0:  # alone, so it must not wait for the others
        output, target = next(noisy_batches(make, 1))
        with torch.no_grad():
            loss(output[:8], target[:8])
        loss.eval()(output[:8].requires_grad_(), target[:8])
    return torch.cat([value.flatten() for value in loss.state_dict().values()]), loss.noise


def robust_losses():
    """They estimate the noise as one process with the whole batch does; the second process has three quarters of it."""
    rank = dist.get_rank()
    rows = slice(0, 16) if rank == 0 else slice(16, 64)
    for make in MISSING:
        state, _ = learned(make, rows, rank)
        whole, expected = learned(make, slice(None), 1, pool=False)
        check_equal(make.__name__, state / whole.abs().clamp(min=0.1), whole / whole.abs().clamp(min=0.1))
        _, alone = learned(make, rows, rank, pool=False)
        part_differs = not torch.isclose(alone, expected, rtol=0.02)
        check(f"{make.__name__}: a part of the batch shows the same, so nothing is tested", part_differs)


def robust_losses_with_a_task_left_out():
    """Where another process may have labels of it: refused; where nothing is learned, it may be left out."""
    losses = {task: RobustMSELoss(reduction="none") for task in TASKS}
    outputs = {task: torch.randn(8, requires_grad=True) for task in TASKS}
    some = {"a": torch.randn(8)}
    refused("a task left out", "pool=False", lambda: by_task(outputs, {**some, "b": None}, TASKS, losses))
    if dist.get_rank() == 0:
        with torch.no_grad():
            by_task(outputs, some, TASKS, losses)
        for loss in losses.values():
            loss.eval()
        by_task(outputs, some, TASKS, losses)


def with_multi_task_loss(model, called, form, rows, without=None, **options):
    """All parameters, and weights and noise. Half of the labels of `a` are random; `without`: a task without labels."""
    kinds = {"a": "classification", "b": "regression"}
    criterion = excessmtl.MultiTaskLoss(kinds, model.trunk, heads="weighted", **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, noise in batches(rows, 24):
        wrong = noise["b"][:, 0] > 0
        targets = {"a": torch.where(wrong, noise["a"].argmax(1), x[:, :3].argmax(1)), "b": x[:, 3:4] + noise["b"]}
        targets.pop(without, None)
        optimizer.zero_grad()
        if form == "backward":
            criterion.backward(called(x), targets)
        else:
            criterion(called(x), targets).backward()
        optimizer.step()
    if dist.get_rank() == 0:  # alone, so it must not wait for the other
        with torch.no_grad():
            criterion.eval()(Model()(x), targets)
    parameters = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    learned = [criterion.balancer.weights, *(loss.noise for loss in criterion.losses.values())]
    return [torch.cat([part.detach().flatten() for part in parts]) for parts in (parameters, learned)]


def multi_task_loss(form):
    """Weights and noise are those of one process with the whole batch, in replicas and in sharded models."""
    model = Model()
    whole = with_multi_task_loss(model, model, "backward", slice(None), pool=False)
    for wrap in (DistributedDataParallel, fully_shard):
        for without in (None, "a") if form == "backward" else (None,):
            model = Model()
            mine_is_missing = without if dist.get_rank() == 1 else None
            found = with_multi_task_loss(model, wrap(model), form, mine(), mine_is_missing)
            for what, one, other in zip(("parameters", "weights and noise"), found, whole, strict=True):
                check_equal(f"{wrap.__name__}, without {without}: {what}", one)
                # Not exactly: the frequencies of classes are those of each process's own batch.
                close = without is not None or torch.allclose(one, other, rtol=0, atol=0.01)
                check(f"{wrap.__name__}: {what} differ by {(one - other).abs().max():.2g}", close)
    if form == "scalar":
        return
    model = Model()
    _, alone = with_multi_task_loss(model, DistributedDataParallel(model), form, mine(), pool=False)
    differs = not torch.allclose(alone, whole[1], rtol=0, atol=0.03)
    check("a part of the batch shows the same, so nothing is tested", differs)


OF_STEPS = (every_method, nan_in_one_process, no_label_in_one_process, static_graph, uneven_inputs, not_averaged)
FORMS = ("backward", "scalar")
SCENARIOS = {f"{one.__name__}-{form}": partial(one, form) for one in OF_STEPS for form in FORMS}
WITHOUT_FORMS = (mean_loss_of_the_processes_with_a_label, robust_losses, robust_losses_with_a_task_left_out)
SCENARIOS |= {one.__name__: one for one in WITHOUT_FORMS}
# Last, since it has models sharded, which the library looks for from then on.
SCENARIOS |= {f"multi_task_loss-{form}": partial(multi_task_loss, form) for form in FORMS}


def main(scenarios):
    rank, folder = int(sys.argv[1]), sys.argv[2]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    notes = {}
    for name, scenario in scenarios.items():
        try:
            scenario()
            notes[name] = "well"
        except Wrong as error:
            notes[name] = str(error)
        except Exception:
            notes[name] = traceback.format_exc()
            break
    Path(folder, f"{rank}.json").write_text(json.dumps(notes))
    # Not sys.exit: tearing down gloo's threads at interpreter exit aborts the process now and then.
    os._exit(0)


if __name__ == "__main__":
    main(SCENARIOS)
