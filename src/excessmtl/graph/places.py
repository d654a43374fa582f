"""Where a method looks at the tasks' gradients: no more than that is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import ClassVar

from torch import Tensor

from excessmtl.graph.shared import Shared


@dataclass(frozen=True)
class Probe:
    """A place in the graph, and how far the backward pass of each task has to go for it."""

    value: str
    """Its name, as users and saved states write it."""
    at_representation: bool = False
    """Whether the gradients at z are looked at: the graph must have a z then."""
    looked_at: Callable[[Shared], Sequence[Tensor]] | None = None
    """Returns the shared parameters whose gradients are looked at; None: those of none."""
    to_the_end: bool = False
    """Whether these are all shared parameters: the backward pass of every task goes through the whole trunk, and no
    further one is needed."""
    at_layer: bool = False
    """Whether these are the parameters of a layer that the user may choose by `layer=`."""

    at_parameters: bool = field(init=False)
    """Whether the gradients of shared parameters are looked at."""
    partway: bool = field(init=False)
    """Whether every task goes some way through the trunk, which is passed once more for all of them."""

    LOSSES: ClassVar["Probe"]
    """Nowhere: the loss values are enough."""
    REPRESENTATION: ClassVar["Probe"]
    """At the shared representation z: one backward pass per head, one through the trunk."""
    LAYER: ClassVar["Probe"]
    """At the last shared layer."""
    SHARED: ClassVar["Probe"]
    """At every shared parameter: one backward pass through the trunk per task."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_parameters", self.looked_at is not None)
        object.__setattr__(self, "partway", self.at_parameters and not self.to_the_end)

    def parameters(self, shared: Shared) -> Sequence[Tensor]:
        """The shared parameters whose gradients are looked at."""
        return () if self.looked_at is None else self.looked_at(shared)

    def __str__(self) -> str:
        return self.value


Probe.LOSSES = Probe("losses")
Probe.REPRESENTATION = Probe("representation", at_representation=True)
Probe.LAYER = Probe("layer", looked_at=attrgetter("layer"), at_layer=True)
Probe.SHARED = Probe("all", looked_at=attrgetter("trainable"), to_the_end=True)
CHOICES = {probe.value: probe for probe in (Probe.SHARED, Probe.REPRESENTATION)}
"""What users of a method that works on any gradients can choose from."""
