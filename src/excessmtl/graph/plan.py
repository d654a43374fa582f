"""Planning a step: how far each task's backward pass goes, and what is looked at on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from excessmtl.distributed import fsdp
from excessmtl.graph import problems
from excessmtl.graph.inputs import StepInputs
from excessmtl.graph.representation import Representation, no_representation
from excessmtl.graph.search import Explored, Reach, explore, nodes_above
from excessmtl.torch_private import compiled_among, time_in_graph


@dataclass(kw_only=True)
class Plan:
    """Where the backward pass of each task ends: at the representation, or at the shared parameters."""

    inputs: StepInputs
    graph: Explored
    representations: Sequence[Representation] = ()
    """All that the losses were computed from, once each. None: the backward passes end at the shared parameters."""
    overlap: bool = True
    """Whether the backward passes of different tasks meet on the way, so that only the last may free the graph."""
    at_parameters: Sequence[Tensor] = ()
    """Shared parameters whose gradient is computed for every task."""
    complete: bool = False
    """Whether these gradients are all that the shared parameters get: the trunk has been passed."""
    second_backward: bool = False
    """Whether gradients are delivered by a second backward pass from the losses, as FSDP needs it."""
    separate_heads: ClassVar[bool] = False
    """Whether it is known that no two tasks meet above the representation."""

    @property
    def reaches(self) -> Sequence[Reach]:
        """What each loss reaches."""
        return self.graph.reaches

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


def plan(inputs: StepInputs, explored: Explored | None = None) -> Plan:
    """The plan that works for any graph, or a ValueError that says why there is none.

    `explored`: the graph down to the representations, where it has been searched already.
    """
    sharded, find = inputs.distributed and fsdp.in_use(), inputs.find_representation
    problem: str | None = None
    if find is not None and (inputs.at is not None or not inputs.probe.to_the_end):
        graph = explored or explore(inputs.losses, inputs.shared_ids, find)
        has_z = any(reach.representations for reach in graph.reaches)
        around = [task for task, reach in zip(inputs.tasks, graph.reaches, strict=True) if reach.shared]
        if around and has_z:
            problem = f"the loss of task {around[0]!r} also reaches shared parameters around the representation"
        if inputs.at is not None and (around or not has_z):
            raise ValueError(
                f"at does not hold the whole representation: {problem if has_z else 'no loss was computed from it'}; "
                "pass a tuple of all tensors through which the losses reach the shared parameters"
            )
        if has_z and not around and not inputs.probe.to_the_end:
            return Plan(
                inputs=inputs,
                graph=graph,
                representations=_representations(graph),
                overlap=graph.overlap,
                at_parameters=inputs.probe.parameters(inputs.shared),
                second_backward=sharded,
            )
    if inputs.probe.at_representation or sharded:
        if find is not None and problem is not None:
            raise ValueError(problems.around_representation(inputs, find, around[0]))
        raise ValueError(problems.no_representation(inputs, find))
    return at_shared_parameters(inputs)


def _representations(graph: Explored) -> list[Representation]:
    """All of them in the order they were computed in, which does not depend on which tasks are present."""
    every = {key: z for reach in graph.reaches for key, z in reach.representations.items()}
    return sorted(every.values(), key=lambda z: 0 if z.edge is None else time_in_graph(z.edge.node))


def at_shared_parameters(inputs: StepInputs) -> Plan:
    """Every task's backward pass goes all the way down."""
    graph = explore(inputs.losses, inputs.shared_ids, no_representation)
    if not any(reach.shared for reach in graph.reaches):
        raise ValueError(problems.no_shared_parameter(inputs))
    return Plan(inputs=inputs, graph=graph, overlap=graph.overlap, at_parameters=inputs.parameters, complete=True)
