"""Tensors made from numbers of the host, once: their copy to a device is one that a CUDA graph cannot record."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import ParamSpec

from torch import Tensor

P = ParamSpec("P")
_holders: list[list[Tensor]] = []


def made_once(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Remember what the function returned for the latest few hundred arguments. Nobody may change the tensors."""
    remembered = lru_cache(maxsize=256)(make)

    @wraps(make)
    def constant(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        found = remembered(*args, **kwargs)  # type: ignore[arg-type]  # all hashable
        for holder in _holders:
            holder.append(found)
        return found

    constant.cache_clear = remembered.cache_clear  # type: ignore[attr-defined]
    return constant


@contextmanager
def held() -> Iterator[list[Tensor]]:
    """The constants that are used inside: a recording reads them long after they may have been forgotten here."""
    holder: list[Tensor] = []
    _holders.append(holder)
    try:
        yield holder
    finally:
        _holders[:] = [one for one in _holders if one is not holder]
