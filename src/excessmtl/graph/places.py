"""Where a method looks at the tasks' gradients: no more than that is computed."""

from collections.abc import Sequence
from dataclasses import dataclass
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
    at_parameters: bool = False
    """Whether the gradients of shared parameters are looked at."""
    to_the_end: bool = False
    """Whether the backward pass of every task goes through the whole trunk, so that no further one is needed."""
    at_layer: bool = False
    """Whether these parameters are those of one layer."""

    LOSSES: ClassVar["Probe"]
    """Nowhere: the loss values are enough."""
    REPRESENTATION: ClassVar["Probe"]
    """At the shared representation z: one backward pass per head, one through the trunk."""
    LAYER: ClassVar["Probe"]
    """At the last shared layer."""
    SHARED: ClassVar["Probe"]
    """At every shared parameter: one backward pass through the trunk per task."""

    def parameters(self, shared: Shared) -> Sequence[Tensor]:
        """The shared parameters whose gradients are looked at."""
        if self.to_the_end:
            return shared.trainable
        return shared.layer if self.at_parameters else ()

    def __str__(self) -> str:
        return self.value


Probe.LOSSES = Probe("losses")
Probe.REPRESENTATION = Probe("representation", at_representation=True)
Probe.LAYER = Probe("layer", at_parameters=True, at_layer=True)
Probe.SHARED = Probe("all", at_parameters=True, to_the_end=True)
CHOICES = {probe.value: probe for probe in (Probe.SHARED, Probe.REPRESENTATION)}
"""What users of a method that works on any gradients can choose from."""
