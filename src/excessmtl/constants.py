"""Tensors made from numbers of the host, once: their copy to a device is one that a CUDA graph cannot record."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import ParamSpec

from torch import Tensor

P = ParamSpec("P")
_holders: dict[int, list[Tensor]] = {}
"""By their ids. For all threads: those of the autograd engine use constants too."""


def made_once(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Remember what the function returned for the latest few hundred arguments. Nobody may change the tensors."""
    remembered = lru_cache(maxsize=256)(make)

    @wraps(make)
    def constant(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        found = remembered(*args, **kwargs)  # type: ignore[arg-type]  # all hashable
        for holder in tuple(_holders.values()):
            holder.append(found)
        return found

    constant.cache_clear = remembered.cache_clear  # type: ignore[attr-defined]
    return constant


@contextmanager
def held() -> Iterator[list[Tensor]]:
    """The constants that are used inside: a recording reads them long after they may have been forgotten here."""
    holder: list[Tensor] = []
    _holders[id(holder)] = holder
    try:
        yield holder
    finally:
        del _holders[id(holder)]
