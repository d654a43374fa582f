"""The parameters of a module, listed once and compared at every step: walking over all its modules takes longer."""

from itertools import chain
from operator import is_
from typing import Any

from torch import Tensor, nn


class Listing:
    """All parameters of a module in order, each once: always what `module.parameters()` would say now."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._entries: list[dict[str, Any]] = []
        """The parameters and the modules that each module holds."""
        self._held: list[Any] = []
        self._parameters: list[Tensor] = []
        self._ids: frozenset[int] = frozenset()

    @property
    def parameters(self) -> list[Tensor]:
        """A list of the caller's own."""
        self._refresh()
        return self._parameters.copy()

    @property
    def ids(self) -> frozenset[int]:
        """Of the same."""
        self._refresh()
        return self._ids

    def _refresh(self) -> None:
        held = self._now()
        if not held or len(held) != len(self._held) or not all(map(is_, held, self._held)):
            modules = self.module.modules()
            self._entries = [entries for one in modules for entries in (one._parameters, one._modules)]
            self._held, self._parameters = self._now(), list(self.module.parameters())
            self._ids = frozenset(map(id, self._parameters))

    def _now(self) -> list[Any]:
        return list(chain.from_iterable(map(dict.values, self._entries)))
