"""What a step works on: the checked arguments of the caller, and what the rule asks for."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from excessmtl.distributed.processes import Reduction, no_reduction
from excessmtl.graph.places import Probe
from excessmtl.graph.representation import FindRepresentation
from excessmtl.graph.shared import Shared

Losses = Mapping[str, Tensor | None]


@dataclass(frozen=True, kw_only=True)
class StepInputs:
    """The checked arguments of one step, in task order."""

    tasks: tuple[str, ...]
    losses: Sequence[Tensor | None]
    """None where a task has no label in this batch."""
    masks: Sequence[Tensor | None]
    """Per task: which samples carry a label."""
    at: list[Tensor] | None
    """The representation, where the caller gave it."""
    finder: Callable[[], FindRepresentation | None]
    """Returns what finds the representation in the graph; None where there is no `at`, no shared module and no mark."""
    scale: Tensor | None
    """The loss scale of a GradScaler."""
    accumulate: bool
    """Whether further micro-batches of this step follow."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further inputs that the rule declares in `uses`, by name."""
    probe: Probe
    """Where the rule looks in this step: nowhere between two estimates."""
    per_sample: bool
    """Whether the rule looks at single samples of the representation."""
    shared: Shared
    all_parameters: list[Tensor]
    """The shared parameters, frozen ones included."""
    shared_ids: Set[int]
    """Their ids."""
    parameters: list[Tensor]
    """The shared parameters that require a gradient."""
    reduction: Reduction = no_reduction
    """How statistics are summed over the processes that train together."""
    distributed: bool = False
    """Whether `torch.distributed` is in use, so that somebody may wait for every gradient."""
