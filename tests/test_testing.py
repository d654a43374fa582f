"""`check_rule`: each mistake an author may make gets its own sentence. test_every_method.py calls it on every rule."""

from dataclasses import dataclass

import pytest
import torch

from excessmtl.methods.base import Decision, Rule
from excessmtl.testing import check_rule


@dataclass(frozen=True)
class Average(Rule):
    """Right: weights in proportion to a moving average of the losses."""

    decay: float = 0.9

    def init(self, tasks, shared):
        return {"average": torch.ones(tasks)}

    def update(self, state, seen):
        average = torch.where(seen.ok, self.averaged(state, seen), state["average"])
        return Decision(self.weights(average, seen), {"average": average})

    def averaged(self, state, seen):
        return torch.lerp(seen.losses, state["average"], self.decay)

    def weights(self, average, seen):
        return average / average.sum().clamp(min=1e-12)


class InPlace(Average):
    def averaged(self, state, seen):
        return state["average"].mul_(self.decay).add_(seen.losses, alpha=1 - self.decay)


class InPlaceOfLosses(Average):
    def averaged(self, state, seen):
        return torch.lerp(seen.losses.clamp_(max=0.5), state["average"], self.decay)


class ByPosition(Average):
    """The tasks that are present come first, whichever they are."""

    def weights(self, average, seen):
        moved = seen.losses[(~seen.ok).int().argsort(stable=True)]
        return moved / moved.sum().clamp(min=1e-12) + (moved.sum() == 0) / seen.tasks


class LetsNaNThrough(Average):
    """A loss of zero, which is what a task that is left out shows, becomes -inf."""

    def weights(self, average, seen):
        return (seen.losses.log() * 0 + average).softmax(0)


class RemembersTheAbsent(Average):
    def update(self, state, seen):
        average = self.averaged(state, seen)
        return Decision(self.weights(average, seen), {"average": average})


class ReadsTheHost(Average):
    def weights(self, average, seen):
        return average / average.sum() if average.sum() > 0 else average


class ReadsByMask(Average):
    def weights(self, average, seen):
        return average / average[seen.ok].sum()


class ReadsAList(Average):
    def weights(self, average, seen):
        return torch.tensor(average.tolist()).softmax(0)


class DrawsElsewhere(Average):
    def weights(self, average, seen):
        return torch.rand(seen.tasks).softmax(0)


class DrawsUnannounced(Average):
    def weights(self, average, seen):
        return torch.rand(seen.tasks, generator=seen.generator).softmax(0)


class KeepsItElsewhere(Average):
    """A memory that no state_dict knows."""

    def weights(self, average, seen):
        memory = self.__dict__.setdefault("memory", [])
        memory.append(average)
        return memory[-3:][0] / memory[-3:][0].sum()


class CountsPlaces(Average):
    def weights(self, average, seen):
        return (average + torch.arange(seen.tasks)).softmax(0)


class OffTheSimplex(Average):
    def weights(self, average, seen):
        return average


class WrongTotal(Average):
    simplex = False

    def total(self, tasks):
        return 2.0


class DoublePrecision(Average):
    def averaged(self, state, seen):
        return super().averaged(state, seen).double()


PLANTED = {
    InPlace: "what update does with its arguments: update changes 'average' in place; make a new tensor",
    InPlaceOfLosses: "what update does with its arguments: update changes 'losses' in place; make a new tensor",
    DoublePrecision: r"what update does with its arguments: the state 'average' becomes torch.float64 \[3\]; init has",
    OffTheSimplex: "what update does with its arguments: with all tasks the weights do not sum to 1; declare simplex",
    DrawsElsewhere: "repeatability: update gives another result for the same arguments; draw random numbers from",
    ReadsTheHost: r"host reads: update reads a value on the host \(__bool__\), which waits for the device; compute",
    ReadsByMask: r"host reads: update reads a value on the host \(an index by a bool tensor\), which waits",
    ReadsAList: r"host reads: update reads a value on the host \(tolist\), which waits",
    DrawsUnannounced: "host reads: update draws from seen.generator; declare uses_host = True",
    CountsPlaces: "the order of tasks: the weights depend on the places of the tasks",
    ByPosition: "the order of tasks: where a task is missing the weights depend on the places of the tasks",
    LetsNaNThrough: "missing tasks: where a task is missing .* not finite",
    RemembersTheAbsent: "missing tasks: the state of a task that is missing changes; keep it with torch.where",
    KeepsItElsewhere: "resuming: a balancer that has loaded the state goes on differently; keep everything",
    WrongTotal: "scale: scale='sum' makes the weights sum to 1.5, not 3; see total",
}
"""A rule with one mistake -> the sentence that it gets."""


def test_a_rule_of_one_s_own_passes_with_its_options():
    check_rule(Average, seeds=[0, 4], decay=0.5)
    assert not hasattr(Average, "name"), "the class is left as it was"


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_a_planted_mistake_gets_its_sentence(rule):
    about, sentence = PLANTED[rule].split(": ", 1)
    where = f"^{rule.__name__} fails the check of {about} with 3 tasks and seed 0: {sentence}"
    with pytest.raises(AssertionError, match=where):
        check_rule(rule)


def test_an_option_the_rule_does_not_have_is_refused():
    with pytest.raises(ValueError, match="power is not an option of the rule; its options are"):
        check_rule(Average, power=2)
