"""Hooks that a user has put on tensors act once: when a gradient is delivered, not while it is being worked out."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def asleep(tensors: Iterable[Tensor | None]) -> Iterator[None]:
    """Inside, the hooks on these tensors are not called, and what `retain_grad` keeps stays what it was.

    Autograd calls the hooks of a tensor whose gradient it is asked for. The gradient is delivered later by another
    walk, which calls them too: a hook that doubles a gradient would make it four times as large.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    hooked = [(hooks, [*hooks.items()]) for tensor in present if (hooks := tensor._backward_hooks)]
    kept = [(tensor, tensor.grad) for tensor in present if tensor.retains_grad]
    for hooks, _ in hooked:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, items in hooked:
            hooks.update(items)
        for tensor, gradient in kept:
            tensor.grad = gradient
