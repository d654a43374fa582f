"""A balancer's reference to the shared part of a model: not a submodule, never copied with the balancer alone."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from excessmtl import inputs
from excessmtl.gradients.cut import FindCut, noted_by, watch
from excessmtl.listing import Listing


class Shared:
    """The shared module or parameters, and the layer GradNorm looks at.

    A deep copy refers to the copied model when model and balancer are copied together, in either order, and to
    the same model when the balancer is copied alone.
    """

    def __init__(self, shared: nn.Module | Iterable[Tensor], layer: Any = None) -> None:
        parameters = inputs.shared_parameters(shared)
        self._target: Any = shared if isinstance(shared, nn.Module) else parameters
        self._layer: Any = layer if layer is None or isinstance(layer, nn.Module | Tensor) else list(layer)
        self._copies: dict[int, Any] | None = None
        self._listing: Listing | None = None
        if isinstance(shared, nn.Module):
            watch(shared)
        if layer is not None:
            mine = {id(parameter) for parameter in parameters}
            chosen = inputs.shared_parameters(self._layer, "layer")
            if any(id(parameter) not in mine for parameter in chosen):
                raise ValueError("layer has parameters that are not in shared; pass a part of the shared module")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shared":
        copied = object.__new__(Shared)
        self._resolve()
        # Which of these the enclosing copy also copies is only known when it is done: looked up at first use.
        copied._target, copied._layer, copied._copies, copied._listing = self._target, self._layer, memo, None
        return copied

    def __getstate__(self) -> dict[str, Any]:
        self._resolve()
        return {**self.__dict__, "_listing": None}

    def _resolve(self) -> None:
        if self._copies is None:
            return
        copies, self._copies, self._listing = self._copies, None, None

        def copy_of(value: Any) -> Any:
            if isinstance(value, list):
                return [copy_of(item) for item in value]
            return copies.get(id(value), value)

        self._target, self._layer = copy_of(self._target), copy_of(self._layer)

    @property
    def module(self) -> nn.Module | None:
        """The shared module, or None where parameters were given."""
        self._resolve()
        return self._target if isinstance(self._target, nn.Module) else None

    @property
    def parameters(self) -> list[Tensor]:
        """All shared parameters, frozen ones included."""
        listing = self._listed
        return list(self._target) if listing is None else listing.parameters

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all shared parameters."""
        listing = self._listed
        return frozenset(map(id, self._target)) if listing is None else listing.ids

    @property
    def _listed(self) -> Listing | None:
        module = self.module
        if self._listing is None and module is not None:
            self._listing = Listing(module)
        return self._listing

    @property
    def device(self) -> torch.device:
        """Where the first of them is."""
        module = self.module
        first: Tensor = next(iter(self._target if module is None else module.parameters()))
        return first.device

    @property
    def trainable(self) -> dict[int, Tensor]:
        """The shared parameters that want a gradient, by their position among all of them."""
        return {i: parameter for i, parameter in enumerate(self.parameters) if parameter.requires_grad}

    @property
    def layer(self) -> Sequence[Tensor]:
        """The parameters GradNorm looks at: the last shared weight matrix unless the user chose."""
        self._resolve()
        if self._layer is not None:
            chosen = [one for one in inputs.shared_parameters(self._layer, "layer") if one.requires_grad]
            if not chosen:
                raise ValueError("layer has no parameter that wants a gradient; choose a layer that is trained")
            return chosen
        trainable = list(self.trainable.values())
        matrices = [parameter for parameter in trainable if parameter.ndim >= 2]
        return (matrices or trainable)[-1:]

    @property
    def find_cut(self) -> FindCut | None:
        """Where the module's hook left the representation in the graph (None without a module)."""
        return None if self.module is None else noted_by(self.module)
