"""The parameters of a module as they are now, without a traversal of all its submodules at every step."""

from collections.abc import Mapping
from itertools import chain
from operator import is_, methodcaller
from typing import Any

from torch import Tensor, nn

from excessmtl.engine import private_torch

_values = methodcaller("values")


class ParameterList:
    """All parameters of a module, each once: always what `module.parameters()` would say now.

    Asking the module means a traversal of all its submodules. Here they are listed once, and the dictionaries they were
    found in are compared at every step, which is ten times faster.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._tables: list[Mapping[str, Any]] = []
        """The parameters and the modules that each module holds."""
        self._held: list[Any] = []
        self.listed: list[Tensor] = []
        self._ids: frozenset[int] = frozenset()

    @property
    def parameters(self) -> list[Tensor]:
        """A list of the caller's own."""
        self._refresh()
        return self.listed.copy()

    @property
    def ids(self) -> frozenset[int]:
        """The ids of the parameters."""
        self._refresh()
        return self._ids

    def _refresh(self) -> None:
        held = self._now()
        if not held or len(held) != len(self._held) or not all(map(is_, held, self._held)):
            self._tables = self._ordinary_tables()
            self._held, self.listed = self._now(), list(self.module.parameters())
            self._ids = frozenset(map(id, self.listed))

    def _ordinary_tables(self) -> list[Mapping[str, Any]]:
        """None at all where a module lists its parameters in a way of its own: it is then asked at every step."""
        modules = list(self.module.modules())
        own_way = not _ordinary(self.module, "parameters", "named_parameters", "_named_members", "modules")
        if own_way or not all(_ordinary(one, "named_modules") for one in modules):
            return []
        found = [private_torch.tables(one) for one in modules]
        return [] if None in found else [table for pair in found if pair is not None for table in pair]

    def _now(self) -> list[Any]:
        return list(chain.from_iterable(map(_values, self._tables)))


def _ordinary(module: nn.Module, *methods: str) -> bool:
    """Whether these methods are those of `nn.Module`."""
    return all(getattr(getattr(module, name), "__func__", None) is getattr(nn.Module, name, 0) for name in methods)
