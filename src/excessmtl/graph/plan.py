"""Planning a step: how far each task's backward pass goes, and what is looked at on the way."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from excessmtl.distributed import fsdp
from excessmtl.graph import problems
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.representation import Representation, no_representation
from excessmtl.graph.search import Reach, explore, nodes_above
from excessmtl.torch_private import compiled_among


@dataclass
class Plan:
    """Where the backward pass of each task ends: at the representation, or at the shared parameters."""

    inputs: StepInputs
    explored: Sequence[Reach] = ()
    overlap: bool = True
    """Whether the backward passes of different tasks meet on the way, so that only the last may free the graph."""
    at_parameters: Sequence[Tensor] = ()
    """Shared parameters whose gradient is computed for every task."""
    second_backward: bool = False
    """Whether gradients are delivered by a second backward pass from the losses, as FSDP needs it."""
    separate_heads: ClassVar[bool] = False
    """Whether it is known that no two tasks meet above the representation."""

    @cached_property
    def reaches(self) -> Sequence[Reach]:
        """What each loss reaches."""
        return self.explored

    @cached_property
    def representations(self) -> list[Representation]:
        """All of them, once each. None: the backward passes end at the shared parameters."""
        by_id = {key: z for reach in self.reaches for key, z in reach.representations.items()}
        return list(by_id.values())

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
        losses = [loss for loss in self.inputs.losses if loss is not None]
        return bool(compiled_among(node for node, _ in nodes_above(losses, self.representations)))

    @property
    def recognised(self) -> list[Representation]:
        """The representations in the graph of this step."""
        return self.representations

    @property
    def complete(self) -> bool:
        """Whether the gradients at parameters are all that the shared parameters get: the trunk has been passed."""
        return not self.representations


def plan(inputs: StepInputs) -> Plan:
    """The plan that works for any graph, or a ValueError that says why there is none."""
    sharded, find, shared = fsdp.in_use(), inputs.find_representation, inputs.shared_ids
    explicit = inputs.at is not None
    problem: str | None = None
    if find is not None and (explicit or not inputs.probe.to_the_end):
        reaches, overlap = explore(inputs.losses, shared, find)
        has_z = any(reach.representations for reach in reaches)
        around = [task for task, reach in zip(inputs.tasks, reaches, strict=True) if reach.shared]
        if around and has_z:
            problem = f"the loss of task {around[0]!r} also reaches shared parameters around the representation"
        if explicit and (around or not has_z):
            raise ValueError(
                f"at does not hold the whole representation: {problem if has_z else 'no loss was computed from it'}; "
                "pass a tuple of all tensors through which the losses reach the shared parameters"
            )
        if has_z and not around and not inputs.probe.to_the_end:
            looked_at = inputs.probe.parameters(inputs.shared)
            return Plan(inputs, reaches, overlap, looked_at, second_backward=sharded)
    if inputs.probe.at_representation or sharded:
        if find is not None and problem is not None:
            raise ValueError(problems.around_representation(inputs, find, around[0]))
        raise ValueError(problems.no_representation(inputs, find))
    return at_shared_parameters(inputs, shared)


def at_shared_parameters(inputs: StepInputs, shared: Set[int]) -> Plan:
    """Every task's backward pass goes all the way down. `shared`: the ids of the shared parameters."""
    reaches, overlap = explore(inputs.losses, shared, no_representation)
    if not any(reach.shared for reach in reaches):
        raise ValueError(problems.no_shared_parameter(inputs))
    return Plan(inputs, reaches, overlap, inputs.parameters)
