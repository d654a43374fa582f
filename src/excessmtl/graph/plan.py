"""Planning a step: how far each task's backward pass goes, and what is looked at on the way."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from excessmtl.distributed import fsdp
from excessmtl.distributed.processes import Reduction, no_reduction
from excessmtl.graph import problems
from excessmtl.graph.representation import FindRepresentation, Representation, given, no_representation
from excessmtl.graph.search import Reach, explore, nodes_above
from excessmtl.graph.shared import Shared
from excessmtl.torch_private import compiled_among

Losses = Mapping[str, Tensor | None]
Validation = Callable[[], Losses] | Losses


class Probe(Enum):
    """Where a method looks at the tasks' gradients; the engine computes no more than that."""

    LOSSES = "losses"
    """Nowhere: the loss values are enough."""
    REPRESENTATION = "representation"
    """At the shared representation z: one backward pass per head, one through the trunk."""
    LAYER = "layer"
    """At the last shared layer."""
    SHARED = "all"
    """At every shared parameter: one backward pass through the trunk per task."""


@dataclass
class Call:
    """The checked arguments of one step, in task order."""

    tasks: tuple[str, ...]
    losses: list[Tensor | None]
    """None where a task has no label in this batch."""
    masks: list[Tensor | None]
    at: list[Tensor] | None
    """The representation, where the caller gave it."""
    scale: Tensor | None
    """The loss scale of a GradScaler."""
    metrics: Tensor | None
    validation: Validation | None
    accumulate: bool
    """Whether further micro-batches of this step follow."""
    probe: Probe
    """Where the rule looks in this step: nowhere between two estimates."""
    per_sample: bool
    """Whether the rule looks at single samples of the representation."""
    takes_vectors: bool
    """Whether one position of a sequence, [samples, features], may stand for all where the losses look at no other."""
    shared: Shared
    reduction: Reduction = no_reduction
    """How statistics are summed over the processes that train together."""
    distributed: bool = False
    """Whether `torch.distributed` is in use, so that somebody may wait for every gradient."""

    @cached_property
    def trainable(self) -> dict[int, Tensor]:
        """The shared parameters that require a gradient, by their position among all of them."""
        return self.shared.trainable

    @cached_property
    def parameters(self) -> list[Tensor]:
        """The shared parameters that require a gradient."""
        return list(self.trainable.values())

    @cached_property
    def find_representation(self) -> FindRepresentation | None:
        """Finds the representation in the graph; None where there is no `at`, no shared module and no mark."""
        return self.shared.find_representation if self.at is None else given(self.at)


@dataclass
class Plan:
    """Where the backward pass of each task ends: at the representation, or at the shared parameters."""

    call: Call
    explored: Sequence[Reach] = ()
    overlap: bool = True
    """Whether the backward passes of different tasks meet on the way, so that only the last may free the graph."""
    at_parameters: Sequence[Tensor] = ()
    """Shared parameters whose gradient is computed for every task."""
    second_backward: bool = False
    """Whether gradients are delivered by a second backward pass from the losses, as FSDP needs it."""
    separate_heads: ClassVar[bool] = False
    """Whether it is known that no two tasks meet above the representation."""

    @property
    def reaches(self) -> Sequence[Reach]:
        """What each loss reaches."""
        return self.explored

    @cached_property
    def representations(self) -> list[Representation]:
        """All of them, once each. None: the backward passes end at the shared parameters."""
        found = {key: one for reach in self.reaches for key, one in reach.representations.items()}
        return list(found.values())

    @property
    def own_leaves(self) -> list[Tensor]:
        """All leaves outside `shared` that a loss reaches."""
        return list({key: leaf for reach in self.reaches for key, leaf in reach.leaves.items()}.values())

    @property
    def leaves(self) -> list[list[Tensor]]:
        """Per task: the leaves outside `shared` that its loss reaches."""
        return [list(reach.leaves.values()) for reach in self.reaches]

    @cached_property
    def heads_compiled(self) -> bool:
        """Whether tasks meet in compiled code above the representation, which hides what they reach below it."""
        if not self.overlap:
            return False
        losses = [loss for loss in self.call.losses if loss is not None]
        return bool(compiled_among(node for node, _ in nodes_above(losses, self.representations)))

    @property
    def noted(self) -> list[Representation]:
        """The representations that this step has found in the graph."""
        return self.representations

    @property
    def complete(self) -> bool:
        """Whether the gradients at parameters are all that the shared parameters get: the trunk has been passed."""
        return not self.representations


def plan(call: Call) -> Plan:
    """The plan that works for any graph, or a ValueError that says why there is none."""
    sharded, find, shared = fsdp.in_use(), call.find_representation, call.shared.ids
    explicit = call.at is not None
    problem: str | None = None
    if find is not None and (explicit or call.probe is not Probe.SHARED):
        reaches, overlap = explore(call.losses, shared, find)
        found = any(reach.representations for reach in reaches)
        around = [task for task, reach in zip(call.tasks, reaches, strict=True) if reach.shared]
        if around and found:
            problem = f"the loss of task {around[0]!r} also reaches shared parameters around the representation"
        if explicit and (around or not found):
            raise ValueError(
                f"at does not hold the whole representation: {problem if found else 'no loss was computed from it'}; "
                "pass a tuple of all tensors through which the losses reach the shared parameters"
            )
        if found and not around and call.probe is not Probe.SHARED:
            looked_at = call.shared.layer if call.probe is Probe.LAYER else ()
            return Plan(call, reaches, overlap, looked_at, second_backward=sharded)
    if call.probe is Probe.REPRESENTATION or sharded:
        if find is not None and problem is not None:
            raise ValueError(problems.around_representation(call, find, around[0]))
        raise ValueError(problems.no_representation(call, find))
    return at_shared_parameters(call, shared)


def at_shared_parameters(call: Call, shared: Set[int]) -> Plan:
    """Every task's backward pass goes all the way down. `shared`: the ids of the shared parameters."""
    reaches, overlap = explore(call.losses, shared, no_representation)
    if not any(reach.shared for reach in reaches):
        raise ValueError(problems.no_shared_parameter(call))
    return Plan(call, reaches, overlap, call.parameters)
