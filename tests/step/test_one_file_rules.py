"""What an author writes in one file: a rule at z, an input of its own, and a place of its own to look at gradients.

A rule names what it reads beside the losses, and nothing else has to change.
"""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from choices import UNIFORM
from excessmtl import Balancer
from excessmtl.graph.places import Probe
from excessmtl.methods.base import Decision, Rule
from excessmtl.testing import check_rule
from models import TASKS, batch, losses_of, mlp


@dataclass(frozen=True)
class AtFirstParameter(Rule):
    """Inverse gradient norms at the first shared parameter, times an importance that comes with the step."""

    name: ClassVar[str] = "at_first_parameter"
    probe: ClassVar[Probe] = Probe("first", looked_at=lambda shared: shared.trainable[:1])
    uses: ClassVar[frozenset[str]] = frozenset({"importance"})

    def update(self, state, seen):
        norms = seen.gram.diagonal().sqrt().clamp(min=1e-12)
        logits = torch.where(seen.ok, -norms.log(), -torch.inf)
        weights = logits.softmax(0).nan_to_num(1 / seen.tasks) * seen.extras.get("importance", 1.0)
        return Decision(weights / weights.sum(), state)


def test_such_a_rule_passes_every_check():
    check_rule(AtFirstParameter)


def test_it_sees_the_gradients_there_and_what_comes_with_the_step():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    heads = {task: nn.Linear(4, 1) for task in "ab"}
    x = torch.randn(5, 3)
    for engine, form in (("fast", "backward"), ("fast", "forward"), ("reference", "backward")):
        balancer = Balancer(AtFirstParameter(), ["a", "b"], trunk, engine=engine, scale="mean")
        losses = {task: head(trunk(x)).square().mean() for task, head in heads.items()}
        norms = [torch.autograd.grad(loss, trunk[0].weight, retain_graph=True)[0].norm() for loss in losses.values()]
        importance = torch.tensor([1.0, 3.0])
        expected = importance / torch.stack(norms)
        getattr(balancer, form)(losses, importance=importance)
        torch.testing.assert_close(balancer.last_step.weights, expected / expected.sum())


def test_an_argument_that_no_rule_reads_is_refused():
    model = mlp()
    x, targets = batch()
    with pytest.raises(ValueError, match="importance is not used by 'uniform'; leave it out"):
        UNIFORM.create(model.trunk).backward(losses_of(model(x), targets), importance=torch.ones(3))
    balancer = Balancer(AtFirstParameter(), TASKS, model.trunk)
    with pytest.raises(ValueError, match="importance is used with the last micro-batch only"):
        balancer.backward(losses_of(model(x), targets), accumulate=True, importance=torch.ones(3))
