"""Random models and batches, against gradients taken task by task with `torch.autograd.grad` and nothing else."""

import pytest
import torch

from engines import ENGINES
from excessmtl.solvers.min_norm import min_norm
from models import Method, batch, gradients, losses_of, mlp
from random_worlds import World

SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 24))]
STEPS = 3
REPRESENTATION = {"probe": "representation"}
LOOKS_AT_Z = [
    Method("excess"),
    Method("excess", {"estimator": "paper", **REPRESENTATION}),
    Method("mgda", REPRESENTATION),
]
LOOKS_AT_SHARED = [
    Method("excess", {"estimator": "paper", "step_size": 0.2}),
    Method("mgda"),
    Method("imtl"),
    Method("cagrad"),
    Method("nash"),
    Method("pcgrad"),
    Method("moml"),
]
GRADNORM = Method("gradnorm")
OTHERS = [Method("uniform"), Method("groupdro"), Method("uw"), GRADNORM]


class Oracle:
    """What a step has to leave behind, from the gradient of each task at each leaf and the weights it reports."""

    def __init__(self, world, heads):
        self.leaves, self.tasks, self.heads = world.leaves, world.tasks, heads
        self.trunk = [any(leaf is one for one in world.shared_leaves) for leaf in world.leaves]
        self.below = [any(leaf is one for one in world.below) for leaf in world.leaves]

    def per_task(self, batch):
        """Task -> gradients at all leaves, zero for a bad task, None where a leaf is not reached."""
        found = {}
        for task, loss in batch.losses.items():
            if loss is not None:
                gradients = torch.autograd.grad(loss, self.leaves, retain_graph=True, allow_unused=True)
                bad = task in batch.bad
                found[task] = [None if g is None else torch.zeros_like(g) if bad else g for g in gradients]
        return found

    def combined(self, per_task, weights):
        """The weighted sum where tasks share a leaf, `w_i g_i` or `g_i` where a leaf is one task's own."""
        total = []
        for j, leaf in enumerate(self.leaves):
            reached = {task: found[j] for task, found in per_task.items() if found[j] is not None}
            own = len(reached) == 1 and not (self.trunk[j] or self.below[j])
            unweighted = own and self.heads == "unweighted"
            parts = [gradient * (1.0 if unweighted else weights[task]) for task, gradient in reached.items()]
            total.append(sum(parts, torch.zeros_like(leaf)))
        return total

    def at_shared(self, per_task):
        """[m, n] gradients at the shared parameters, zero for a task that is missing."""
        nothing = [None] * len(self.leaves)
        rows = [
            [
                (torch.zeros_like(leaf) if found is None else found).flatten()
                for leaf, found, shared in zip(self.leaves, per_task.get(task, nothing), self.trunk, strict=True)
                if shared
            ]
            for task in self.tasks
        ]
        return torch.stack([torch.cat(row) for row in rows])


class Rules:
    """The weights of some methods, straight from their papers. A task that takes no part keeps its weight."""

    def __init__(self, method, tasks):
        self.name, self.squares, self.scores = method.name, 0.0, torch.zeros(tasks, dtype=torch.float64)
        self.weights = torch.full((tasks,), 1 / tasks, dtype=torch.float64)

    def update(self, rows, ok):
        new = getattr(self, self.name)(rows, ok)
        self.weights = torch.where(ok, new, self.weights)
        return self.weights

    def uniform(self, rows, ok):
        return torch.full_like(self.weights, 1 / len(self.weights))

    def mgda(self, rows, ok):
        return min_norm(rows @ rows.T, ok)

    def imtl(self, rows, ok):
        """Equal projections on all directions: C x = 1 for their cosines C, w_i = x_i / |g_i|, sum w = 1."""
        norms = rows[ok].norm(dim=1)
        units = rows[ok] / norms[:, None]
        raw = torch.linalg.pinv(units @ units.T, rtol=1e-9, hermitian=True).sum(1) / norms
        return torch.zeros_like(self.weights).masked_scatter(ok, raw / raw.sum())

    def excess(self, rows, ok):
        """Algorithm 1: s += g^2, E = sum g^2 / sqrt(s), alpha proportional to alpha exp(eta E)."""
        self.squares = self.squares + rows.square()
        risks = (rows.square() / (self.squares.sqrt() + 1e-12)).sum(1)
        self.scores = self.scores + torch.where(ok, 0.2 * risks, 0)
        return self.scores.softmax(0)


def call(world, balancer, batch, accumulate):
    arguments = {"at": batch.at, "mask": batch.mask or None, "scaler": world.scaler, "accumulate": accumulate}
    if not world.scalar:
        return balancer.backward(batch.losses, **arguments)
    scalar = balancer(batch.losses, **arguments)
    (scalar if world.scaler is None else world.scaler.scale(scalar)).backward()
    return balancer.last_step


def compare(world, expected):
    scale = 1.0 if world.scaler is None else world.scaler.get_scale()
    largest = max(float(wanted.abs().max()) for wanted in expected) * scale
    for leaf, wanted in zip(world.leaves, expected, strict=True):
        found = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        torch.testing.assert_close(found, wanted * scale, rtol=1e-7, atol=1e-9 * largest)


@pytest.mark.filterwarnings("ignore:.* parameters outside shared are reached by several tasks")
@pytest.mark.parametrize("way", ENGINES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", [*LOOKS_AT_Z, *LOOKS_AT_SHARED, *OTHERS], ids=str)
def test_as_plain_autograd_has_it(method, seed, way):
    world = World(f"{method} {seed}", needs_z=method in LOOKS_AT_Z)
    engine = ENGINES[way]()
    balancer = method.create(world.shared, tasks=world.tasks, heads=world.heads_weighted, scale=1.0, engine=engine)
    oracle = Oracle(world, "weighted" if world.scalar else balancer.heads)
    rules = Rules(method, len(world.tasks))
    for _ in range(STEPS):
        count = 1 if method == GRADNORM and not world.knows_z else world.draw.choice([1, 1, 2])
        batches = [world.batch() for _ in range(count)]
        world.model.zero_grad()
        seen, weights = [], []
        for one in batches:
            seen.append(oracle.per_task(one))
            step = call(world, balancer, one, accumulate=one is not batches[-1])
            assert step.skipped == one.bad
            weights.append(step.weights.double())
        if method in LOOKS_AT_SHARED:  # these wait for the last micro-batch, and give all of them its weights
            weights = [balancer.weights.double()] * len(batches)
        expected = [
            oracle.combined(per_task, dict(zip(world.tasks, given, strict=True)))
            for per_task, given in zip(seen, weights, strict=True)
        ]
        compare(world, [sum(parts) for parts in zip(*expected, strict=True)])
        if str(method) in ("uniform", "mgda", "imtl", "excess-paper-0.2"):
            takes_part = [
                [one.losses[task] is not None and task not in one.bad for one in batches] for task in world.tasks
            ]
            wanted = rules.update(sum(map(oracle.at_shared, seen)), torch.tensor(takes_part).any(1))
            torch.testing.assert_close(balancer.weights.double(), wanted, rtol=1e-3, atol=1e-4)


def test_gradnorm_gives_micro_batches_the_weights_of_the_step_before_wherever_it_looks():
    """The guide: only methods that look at all shared parameters hold the gradients of micro-batches back."""
    found = []
    for as_list in (False, True):
        model = mlp()
        balancer = GRADNORM.create(list(model.trunk.parameters()) if as_list else model.trunk, step_size=0.5)
        torch.manual_seed(3)
        for last in (False, True) * 3:  # the weights of the first two steps are still 1
            x, targets = batch()
            balancer.backward(losses_of(model(x), targets), accumulate=not last)
        assert (balancer.weights - 1).abs().max() > 0.01
        found.append(gradients(model.trunk))
    torch.testing.assert_close(*found)
