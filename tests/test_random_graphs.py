"""Random models and batches, against gradients taken task by task with `torch.autograd.grad` and nothing else."""

import pytest
import torch

from engines import ENGINES
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
