"""The parameters of a module, listed once and compared at every step: walking over all its modules takes longer."""

from collections.abc import Mapping
from itertools import chain
from operator import is_, methodcaller
from typing import Any

from torch import Tensor, nn

_LISTS = ("parameters", "named_parameters", "_named_members", "modules")
"""The methods by which a module lists what is in it, beside `named_modules`, which the modules in it have a say in."""
_values = methodcaller("values")


class Listing:
    """All parameters of a module in order, each once: always what `module.parameters()` would say now."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._entries: list[Mapping[str, Any]] = []
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
            modules = list(self.module.modules())
            # A module that lists in a way of its own is asked every time: without entries there is nothing to compare.
            known = _as_usual(self.module, *_LISTS) and all(_as_usual(one, "named_modules") for one in modules)
            self._entries = [entries for one in modules for entries in (one._parameters, one._modules)] if known else []
            self._held, self._parameters = self._now(), list(self.module.parameters())
            self._ids = frozenset(map(id, self._parameters))

    def _now(self) -> list[Any]:
        return list(chain.from_iterable(map(_values, self._entries)))


def _as_usual(module: nn.Module, *methods: str) -> bool:
    """Whether these methods are those of every module."""
    return all(getattr(getattr(module, name), "__func__", None) is getattr(nn.Module, name) for name in methods)
