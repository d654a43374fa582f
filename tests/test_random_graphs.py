"""Random models and batches, against gradients taken task by task with `torch.autograd.grad` and nothing else.

A seed (a text or a number) decides everything that a training loop may pass to a balancer, in double precision.
"""

import random
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from choices import ENGINES, Method
from steps import assert_gradients, expected_gradients, plain_gradients, take_step

FEATURES, WIDTH, BATCH = 5, 7, 6
TRUNKS = ("one output", "two outputs", "nested outputs", "skip connection", "own inputs")
HEADS = ("linear", "mlp", "neck", "two layers in one")


class Trunk(nn.Module):
    """Returns one representation or two; for a skip connection a head takes what it keeps beside."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.kept = kind, None
        self.first, self.second = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.third = nn.Linear(WIDTH, WIDTH) if kind in ("two outputs", "nested outputs") else None

    def forward(self, x):
        hidden = self.first(x).tanh()
        z = self.second(hidden).tanh()
        self.kept = hidden
        if self.kind == "two outputs":
            return z, self.third(hidden).tanh()
        if self.kind == "nested outputs":
            return z, self.third(z).tanh()
        return z


class Head(nn.Module):
    """One number per sample. A neck stands outside `shared` and serves several tasks."""

    def __init__(self, kind, inputs, neck):
        super().__init__()
        self.kind, width = kind, WIDTH * inputs
        if kind == "neck":
            self.__dict__["neck"] = neck  # not this head's own
            self.squeeze = nn.Linear(width, WIDTH) if inputs > 1 else nn.Identity()
            width = WIDTH
        if kind == "mlp":
            self.before = nn.Sequential(nn.Linear(width, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
            width = WIDTH
        if kind == "two layers in one":
            self.beside = nn.Linear(width, 1)
        self.last = nn.Linear(width, 1, bias=kind != "linear" or inputs > 1)

    def forward(self, z):
        if self.kind == "neck":
            return self.last(self.neck(self.squeeze(z)).tanh())
        if self.kind == "mlp":
            return self.last(self.before(z))
        if self.kind == "two layers in one":
            return self.last(z) * self.beside(z)
        return self.last(z)


@dataclass
class Batch:
    """What one call of `backward` gets, and what is wrong with it."""

    losses: dict[str, Tensor | None]
    at: object
    mask: dict[str, Tensor] = field(default_factory=dict)
    bad: tuple[str, ...] = ()
    """Tasks with a loss or a gradient that is not finite."""


class World:
    """A model, and batches of it. `needs_z`: the method has to be given or to find all of the representation."""

    def __init__(self, seed, needs_z):
        self.draw = draw = random.Random(seed)
        torch.manual_seed(draw.getrandbits(31))
        self.tasks = list("abcd")[: draw.randint(2, 4)]
        self.kind = draw.choice(TRUNKS)
        self.trunk, self.neck = Trunk(self.kind), nn.Linear(WIDTH, WIDTH)
        self.stem = nn.Linear(FEATURES, FEATURES) if draw.random() < 0.25 else None
        self.takes = {task: self._taken() for task in self.tasks}
        self.heads = nn.ModuleDict({t: Head(draw.choice(HEADS), len(self.takes[t]), self.neck) for t in self.tasks})
        parts = [self.trunk, self.neck, self.heads, *([] if self.stem is None else [self.stem])]
        self.model = nn.ModuleList(parts).double()
        if draw.random() < 0.2:
            self.trunk.first.bias.requires_grad_(False)
        around = any("kept" in taken for taken in self.takes.values())
        self.as_list = draw.random() < 0.3
        self.gives_at = draw.random() < 0.4 or (needs_z and (self.as_list or around))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0) if draw.random() < 0.2 else None
        self.heads_weighted = draw.choice([None, "weighted", "unweighted"])
        self.scalar = draw.random() < 0.35

    def _taken(self):
        """Which tensors the head of a task takes."""
        if self.kind in ("two outputs", "nested outputs"):
            return self.draw.choice([(0,), (1,), (0, 1)])
        if self.kind == "skip connection":
            return self.draw.choice([(0,), (0, "kept")])
        return (0,)

    @property
    def shared(self):
        return list(self.trunk.parameters()) if self.as_list else self.trunk

    @property
    def shared_leaves(self):
        return [parameter for parameter in self.trunk.parameters() if parameter.requires_grad]

    @property
    def leaves(self):
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def below(self):
        """Leaves outside `shared` that all tasks see through the representation alone."""
        return [] if self.stem is None else list(self.stem.parameters())

    def batch(self):
        """A forward, and labels of which some are missing or bad."""
        draw, missing = self.draw, set()
        if len(self.tasks) > 2 and draw.random() < 0.4:
            missing = {draw.choice(self.tasks)}
        own_inputs = self.kind == "own inputs"
        outputs = {task: self._outputs() for task in self.tasks} if own_inputs else dict.fromkeys(self.tasks, None)
        common = None if own_inputs else self._outputs()
        made = Batch({}, None)
        bad = draw.choice(self.tasks) if draw.random() < 0.3 else None
        kinds = ("nan loss", "inf loss") if self.scaler else ("nan loss", "inf loss", "inf gradient")
        for task in self.tasks:
            outputs[task] = outputs[task] or common
            if task in missing:
                made.losses[task] = None
                continue
            taken = [outputs[task][place] for place in self.takes[task]]
            made.losses[task] = self._loss(task, torch.cat(taken, 1), made.mask)
            if task == bad:
                made.losses[task] = _spoilt(made.losses[task], taken[0], draw.choice(kinds))
                made.bad = (task,)
        if self.gives_at:
            made.at = self._at(outputs)
        return made

    def _outputs(self):
        x = torch.randn(BATCH, FEATURES, dtype=torch.float64)
        z = self.trunk(x if self.stem is None else self.stem(x))
        found = dict(enumerate(z if isinstance(z, tuple) else (z,)))
        return {**found, "kept": self.trunk.kept}

    def _loss(self, task, features, mask):
        target = torch.randn(BATCH, 1, dtype=torch.float64)
        errors = (self.heads[task](features) - target).square()
        if self.draw.random() < 0.25:
            mask[task] = torch.arange(BATCH) < self.draw.randint(2, BATCH)
            errors = errors[mask[task]]
        return errors.mean() * self.draw.choice([0.3, 1.0, 5.0])

    def _at(self, outputs):
        """Everything through which heads reach the trunk, in one of the ways there are to say it."""
        by_task = {task: tuple(outputs[task][place] for place in self.takes[task]) for task in self.tasks}
        if self.kind == "own inputs":
            return by_task
        together = tuple({id(z): z for taken in by_task.values() for z in taken}.values())
        return together if len(together) > 1 or self.draw.random() < 0.5 else together[0]


def _spoilt(loss, z, how):
    if how == "nan loss":
        return loss * torch.nan
    if how == "inf loss":
        return loss + torch.inf
    return loss + (z - z.detach()).abs().sqrt().sum()


# ------------------------------------------------------------------ what they must give

SEEDS = [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 24))]
STEPS = 3
LOOKS_AT_Z = [Method("excess"), Method("mgda", {"probe": "representation"})]
LOOKS_AT_SHARED = [Method("excess", {"estimator": "paper", "step_size": 0.2}), Method("mgda")]
METHODS = [*LOOKS_AT_Z, *LOOKS_AT_SHARED, Method("uniform"), Method("gradnorm")]


@pytest.mark.filterwarnings("ignore:.* parameters outside shared are reached by several tasks")
@pytest.mark.parametrize("way", ENGINES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_as_plain_autograd_has_it(method, seed, way):
    world = World(f"{method} {seed}", needs_z=method in LOOKS_AT_Z)
    engine = ENGINES[way]()
    balancer = method.create(world.shared, tasks=world.tasks, heads=world.heads_weighted, scale=1.0, engine=engine)
    scale = 1.0 if world.scaler is None else world.scaler.get_scale()
    for _ in range(STEPS):
        batches = [world.batch() for _ in range(world.draw.choice([1, 1, 2]))]
        world.model.zero_grad()
        plain, steps = [], []
        for one in batches:
            plain.append(plain_gradients(one.losses, world.leaves))
            arguments = {"at": one.at, "mask": one.mask or None, "accumulate": one is not batches[-1]}
            steps.append(take_step(balancer, one.losses, world.scalar, world.scaler, **arguments))
            assert steps[-1].skipped == one.bad
        # Those that look at shared parameters wait for the last micro-batch, and give all of them its weights.
        weights = balancer.weights if method in LOOKS_AT_SHARED else None
        heads, shared = "weighted" if world.scalar else balancer.heads, [*world.shared_leaves, *world.below]
        by_batch = [
            expected_gradients(balancer, step, per_task, world.leaves, shared, heads, weights)
            for step, per_task in zip(steps, plain, strict=True)
        ]
        parts = [[part for part in of_leaf if part is not None] for of_leaf in zip(*by_batch, strict=True)]
        assert_gradients(world.leaves, [scale * sum(of_leaf) if of_leaf else None for of_leaf in parts], rtol=1e-9)
