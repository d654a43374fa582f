"""Training written a second time, as plainly as possible: what `excessmtl train` has to compute, number by number.

Nothing of `excessmtl.lab.training` is used here. What is: the benchmark's data and network, the label noise and the
balancer, which have tests of their own.
"""

import hashlib
from dataclasses import replace

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

import excessmtl
from excessmtl.lab.data.kinds import classification
from excessmtl.lab.data.noise import Noise, apply


def train(
    world,
    method,
    seed=0,
    noise=0.0,
    noisy=("b",),
    noise_seed=None,
    exclude_true=False,
    redraw=False,
    noise_kind="uniform",
    noisy_validation=False,
    epochs=2,
    size=16,
    optimiser="adam",
    optimiser_options=(),
    rate=0.02,
    decay=0.03,
    rates=None,
    limit=None,
    options=None,
):
    """Steps, a row per epoch and the numbers of the summary."""
    names = [task.name for task in world.tasks]
    torch.manual_seed(seed)
    alone = method == "single"

    trunks, heads, modules = _networks(world, alone)
    makers = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimiser = makers[optimiser](modules.parameters(), lr=rate, weight_decay=decay, **dict(optimiser_options))
    if not alone:
        balancer = excessmtl.create(method, tasks=names, shared=trunks[names[0]], **(options or {}))
        total = len(names) if method == "dwa" else 1  # the weights of DWA sum to m as published
    clean, held_out = _fifth(world.train, seed) if method == "moml" else (world.train, None)
    hit = Noise(noise, noisy, seed if noise_seed is None else noise_seed, exclude_true, redraw, noise_kind)

    judged = world
    if noisy_validation:
        judged = replace(world, validation=apply(world.validation, world.tasks, hit, part="validation"))

    def losses(inputs, targets):
        z = None if isinstance(inputs, dict) or alone else trunks[names[0]](inputs)
        own = {n: inputs[n] if isinstance(inputs, dict) else inputs for n in names}
        outputs = {n: heads[n](trunks[n](own[n]) if z is None else z) for n in names}
        return {t.name: _loss(t, outputs[t.name], targets[t.name]) for t in world.tasks}

    steps, rows = [], []
    for epoch in range(epochs):
        split = apply(clean, world.tasks, hit, epoch)
        shaken = Generator().manual_seed(_hash("augment", seed, epoch))
        ahead = None if held_out is None else _endless(held_out, size, _hash("validation", seed, epoch))
        modules.train()
        for index, (inputs, targets) in enumerate(_batches(split, size, seed * 1_000_003 + epoch)):
            if index == limit:
                break
            inputs = _prepared(world, inputs)
            if world.augment is not None:
                inputs, targets = world.augment(inputs, targets, shaken)
            if rates is not None:
                optimiser.param_groups[0]["lr"] = rates[len(steps)]
            optimiser.zero_grad()
            found = losses(inputs, targets)
            if alone:
                sum(found.values()).backward()
                weights = excess = torch.full((len(names),), torch.nan)
            else:
                validation = None if ahead is None else lambda batches=ahead: losses(*_ready(world, next(batches)))
                step = balancer.backward(found, validation_losses=validation)
                weights, excess = step.weights / len(names) * total, step.excess_risks
            optimiser.step()
            steps.append(torch.stack([weights, torch.stack([*found.values()]).detach(), excess]).numpy())
        if not alone:
            balancer.end_epoch()
        modules.eval()
        rows.append({"epoch": epoch, **_means(names, steps, epochs=epoch + 1, alone=alone)})
        for part in ("validation", "test"):
            rows[-1] |= _evaluate(judged, part, trunks, heads, limit, size)
    return np.stack(steps), rows


def summary(world, rows, steps, noisy):
    """What `summary.json` says about scores and weights; the last epoch's, never the best one's."""
    names = [task.name for task in world.tasks]
    primary = {t.name: "accuracy" if t.kind == classification else "nmse" for t in world.tasks}
    scores = {n: rows[-1][f"test/{n}/{primary[n]}"] for n in names}
    last = steps[len(steps) * (len(rows) - 1) // len(rows) :, 0].astype(np.float64).mean(0)
    weights = None if np.isnan(last).any() else dict(zip(names, last / last.sum(), strict=True))
    groups = {"clean": [n for n in names if n not in noisy], "noisy": list(noisy), "overall": names}
    alike = len(set(primary.values())) == 1
    means = {f"{g}_score": np.mean([scores[n] for n in own]) if alike else None for g, own in groups.items()}
    recent = rows[-5:]
    return {
        **means,
        "scores": scores,
        "mean_scores": {n: np.mean([row[f"test/{n}/{primary[n]}"] for row in recent]) for n in names},
        "mean_scores_epochs": len(recent),
        "metrics": {key.removeprefix("test/"): rows[-1][key] for key in rows[-1] if key.startswith("test/")},
        "primary_metric": primary,
        "higher_is_better": {n: metric == "accuracy" for n, metric in primary.items()},
        "units": {n: {"accuracy": "share", "nmse": "ratio"}[metric] for n, metric in primary.items()},
        "weights": weights,
        "clean_weight": None if weights is None else sum(weights[n] for n in groups["clean"]),
        "epochs": len(rows),
        "completed": True,
    }


def _networks(world, alone):
    """Task -> trunk (one for all, or each its own), task -> head, and all of them as a module."""
    trunks, heads = {}, {}
    if alone:
        for task in world.tasks:
            trunks[task.name], heads[task.name] = world.build_trunk(), world.build_head(task)
    else:
        trunks = dict.fromkeys([task.name for task in world.tasks], world.build_trunk())
        heads = {task.name: world.build_head(task) for task in world.tasks}
    return trunks, heads, nn.ModuleList([*trunks.values(), *heads.values()])


def _loss(task, output, target):
    return F.cross_entropy(output, target) if task.kind == classification else F.mse_loss(output, target)


def _hash(*key):
    return int.from_bytes(hashlib.sha256("\0".join(map(str, key)).encode()).digest()[:4], "big")


def _fifth(split, seed):
    """(four fifths, a fifth) of a split with common inputs."""
    order = torch.randperm(len(split.inputs), generator=Generator().manual_seed(seed))
    count = round(0.2 * len(order))
    parts = order[count:], order[:count]
    return tuple(type(split)(split.inputs[rows], {n: t[rows] for n, t in split.targets.items()}) for rows in parts)


def _batches(split, size, seed):
    """Whole batches in a random order; tasks with inputs of their own begin again until the longest is over."""
    generator = Generator().manual_seed(seed)
    longest = max(len(target) for target in split.targets.values())
    size = min(size, longest)
    steps = longest // size
    separate = isinstance(split.inputs, dict)
    order = None
    chosen = {}
    for name, target in split.targets.items():
        if order is None or separate:
            rounds = -(-steps * size // len(target))
            order = torch.cat([torch.randperm(len(target), generator=generator) for _ in range(rounds)])
        chosen[name] = order
    for step in range(steps):
        rows = {name: own[step * size : (step + 1) * size] for name, own in chosen.items()}
        common = rows[next(iter(rows))]
        inputs = {n: split.inputs[n][rows[n]] for n in rows} if separate else split.inputs[common]
        yield inputs, {name: target[rows[name]] for name, target in split.targets.items()}


def _endless(split, size, seed):
    number = 0
    while True:
        yield from _batches(split, size, seed * 1_000_003 + number)
        number += 1


def _prepared(world, inputs):
    return world.prepare(inputs) if isinstance(inputs, Tensor) else {n: world.prepare(x) for n, x in inputs.items()}


def _ready(world, batch):
    return _prepared(world, batch[0]), batch[1]


def _means(names, steps, epochs, alone):
    last = np.stack(steps[len(steps) * (epochs - 1) // epochs :]).mean(0)
    row = {f"train/{n}/loss": last[1, i] for i, n in enumerate(names)}
    return row if alone else row | {f"train/{n}/weight": last[0, i] for i, n in enumerate(names)}


@torch.no_grad()
def _evaluate(world, part, trunks, heads, limit, size):
    """Loss and metric of every task, each example counting once; `limit` counts batches of four training batches."""
    split, row = getattr(world, part), {}
    for task in world.tasks:
        inputs = split.inputs[task.name] if isinstance(split.inputs, dict) else split.inputs
        seen = slice(None if limit is None else 4 * size * limit)
        output = heads[task.name](trunks[task.name](world.prepare(inputs[seen])))
        target = split.targets[task.name][seen]
        row[f"{part}/{task.name}/loss"] = _loss(task, output, target).item()
        if task.kind == classification:
            row[f"{part}/{task.name}/accuracy"] = (output.argmax(1) == target).double().mean().item()
        else:
            variance = np.var(world.train.targets[task.name].double().numpy())
            row[f"{part}/{task.name}/nmse"] = ((output - target) ** 2).mean().item() / variance
    return row
