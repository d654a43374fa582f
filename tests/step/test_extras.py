"""Further inputs of a step: a rule names what it reads, and nothing else has to change."""

from dataclasses import dataclass

import pytest
import torch

from excessmtl import Balancer
from excessmtl.methods.base import Decision, Rule
from models import TASKS, UNIFORM, batch, losses_of, mlp


@dataclass(frozen=True)
class ByDifficulty(Rule):
    """Weights that the training loop knows."""

    name = "by_difficulty"
    uses = frozenset({"difficulty"})

    def update(self, state, seen):
        """In proportion to the difficulties, or equal where none are given."""
        given = seen.extras.get("difficulty")
        raw = torch.ones_like(seen.losses) if given is None else given.to(seen.losses)
        return Decision(raw / raw.sum(), state)


@pytest.mark.parametrize("scalar", [False, True])
def test_an_argument_of_the_rule_s_own(scalar):
    model = mlp()
    balancer = Balancer(ByDifficulty(), TASKS, model.trunk, scale="mean")
    for difficulty, wanted in ((torch.tensor([1.0, 1.0, 2.0]), [0.25, 0.25, 0.5]), (None, [1 / 3] * 3)):
        losses = model.losses()
        take = balancer if scalar else balancer.backward
        take(losses, difficulty=difficulty)
        assert balancer.last_step.weights.tolist() == pytest.approx(wanted)


def test_an_argument_that_no_rule_reads_is_refused():
    model = mlp()
    x, targets = batch()
    with pytest.raises(ValueError, match="difficulty is not used by 'uniform'; leave it out"):
        UNIFORM.create(model.trunk).backward(losses_of(model(x), targets), difficulty=torch.ones(3))
    balancer = Balancer(ByDifficulty(), TASKS, model.trunk)
    with pytest.raises(ValueError, match="difficulty is used with the last micro-batch only"):
        balancer.backward(losses_of(model(x), targets), accumulate=True, difficulty=torch.ones(3))
