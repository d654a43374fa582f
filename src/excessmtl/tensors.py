"""Small operations on tensors. None of them reads a device value."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, wraps
from typing import Any, ParamSpec

import torch
from torch import Tensor, nn

from excessmtl.torch_private import parameters_of, parts_of

P = ParamSpec("P")
_LARGEST = 2.0**64
"""The square of all fp32 numbers below it is finite."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_users: dict[int, list[Tensor]] = {}
"""Lists that collect the constants in use, by id. For all threads: those of autograd use constants too."""


def is_finite(values: Tensor) -> Tensor:
    """As `torch.isfinite`, in two operations instead of four."""
    return values - values == 0


def usable(magnitudes: Tensor) -> Tensor:
    """Bool, for fp32 numbers that are not negative: not NaN, nor so large that the square is infinite.

    A loss or gradient beyond 1e19 is as useless as an infinite one: methods multiply gradients with each other.
    """
    return magnitudes < _LARGEST


def magnitude(values: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """The Euclidean norm in fp32; not finite if an entry is not."""
    wide = torch.float32 if values.dtype in (torch.float16, torch.bfloat16) else None
    size: Tensor = torch.linalg.vector_norm(values, dim=dim, dtype=wide)
    return size.float()


def zero_unless(ok: Tensor, values: Tensor) -> None:
    """In place: zero where not `ok`, whatever was there."""
    if values.is_complex():
        values, ok = torch.view_as_real(values), ok.unsqueeze(-1)
    # The bits as integers times 0 or 1: a product of floats keeps NaN, and `where` takes ten times as long on a CPU.
    values.view(_INTEGERS[values.element_size()]).mul_(ok)


def zeroed_unless(ok: Tensor, values: Tensor) -> Tensor:
    """A copy with zeros where not `ok`. Sparse tensors stay sparse."""
    if values.is_sparse:
        return on_values(values, lambda entries: zeroed_unless(ok, entries))
    if values.is_complex():
        return torch.where(ok, values, 0)
    return (values.view(_INTEGERS[values.element_size()]) * ok).view(values.dtype)


def on_values(sparse: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A copy of a sparse tensor with the function applied to the entries that are stored."""
    copied = sparse.coalesce().clone()
    copied.values().copy_(function(copied.values()))
    return copied


def stored_entries(gradient: Tensor) -> Tensor:
    """Of a sparse gradient those that are stored; of others all."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def times(gradient: Tensor, factor: Tensor) -> Tensor:
    """The product. Sparse gradients stay sparse."""
    return on_values(gradient, lambda entries: entries * factor) if gradient.is_sparse else gradient * factor


def among(values: Tensor, places: tuple[int, ...]) -> Tensor:
    """The entries of `values` at these places."""
    return values if places == tuple(range(len(values))) else values[index_of(places, values.device)]


def added_at(total: Tensor, places: tuple[int, ...], values: Tensor) -> Tensor:
    """`total` with one of the values added at each of these places."""
    values = values.to(total.device)
    if places == tuple(range(len(total))):
        return total + values
    return total.index_add(0, index_of(places, total.device), values)


def dense(gradient: Tensor) -> Tensor:
    """Sparse gradients filled up with zeros; others as they are."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The sum; where there is only one, that tensor itself."""
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors)).sum(0)


def split_by_parameter(matrix: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The columns that belong to each parameter, in a tensor that has the entries of all of them side by side."""
    return torch.split(matrix, [parameter.numel() for parameter in parameters], dim=-1)


def parameters_below(module: nn.Module) -> dict[int, Tensor]:
    """As `module.parameters()`, in its order, by their ids."""
    found: dict[int, Tensor] = {}
    stack: list[nn.Module | None] = [module]
    visited: set[nn.Module] = set()
    while stack:
        part = stack.pop()
        if part is not None and part not in visited:
            visited.add(part)
            for parameter in parameters_of(part).values():
                if parameter is not None:
                    found[id(parameter)] = parameter
            stack.extend(reversed(parts_of(part).values()))
    return found


def autocast_disabled(like: Tensor) -> AbstractContextManager[Any]:
    """Statistics must not be rounded to the precision that the model computes in."""
    device = like.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def cached_constant(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Keep what the function returned for its last few hundred arguments. Nobody may change the tensors.

    A copy from the host at every step would make the host wait, and a CUDA graph could not record it.
    """
    remembered = lru_cache(maxsize=256)(make)

    @wraps(make)
    def constant(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        tensor = remembered(*args, **kwargs)  # type: ignore[arg-type]  # all are hashable
        for users in tuple(_users.values()):
            users.append(tensor)
        return tensor

    constant.cache_clear = remembered.cache_clear  # type: ignore[attr-defined]
    return constant


@contextmanager
def constants_in_use() -> Iterator[list[Tensor]]:
    """Collects the constants used inside: a CUDA graph reads them long after the cache may have dropped them."""
    used: list[Tensor] = []
    _users[id(used)] = used
    try:
        yield used
    finally:
        del _users[id(used)]


@cached_constant
def index_of(places: tuple[int, ...], device: torch.device) -> Tensor:
    """An index tensor for these places."""
    return torch.tensor(places, device="cpu").to(device)


@cached_constant
def filled(value: float, size: int, device: torch.device) -> Tensor:
    """[size] fp32: the value everywhere."""
    return torch.full((size,), value, dtype=torch.float32, device=device)


@cached_constant
def flags(values: tuple[bool, ...], device: torch.device) -> Tensor:
    """A tensor of these booleans."""
    return torch.tensor(values, device="cpu").to(device)
