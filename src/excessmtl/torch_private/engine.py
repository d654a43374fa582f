"""What every step asks of autograd: backward passes, hooks, leaves, linear layers, what tensors tell of themselves.

Some names below are torch's own functions, chosen when this file is imported; the others ask when they are called.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge

# `torch.autograd.grad` checks shapes and types first, which are known here: 20 microseconds a call.
# https://github.com/pytorch/pytorch/blob/main/torch/autograd/graph.py
# Without it: torch.autograd.grad and torch.autograd.backward.
_run: Callable[..., Any] | None = getattr(torch.autograd.graph, "_engine_run_backward", None)
# Python may call back when a backward pass ends; DDP and FSDP do the same.
# https://github.com/pytorch/pytorch/issues/35548
# Without it: losses under FSDP are good for one backward.
_queue_callback: Callable[..., None] | None = getattr(
    getattr(torch.autograd.Variable, "_execution_engine", None), "queue_callback", None
)
# torch.vmap warns of operators that it loops over, which is still faster than one backward pass per task.
# https://github.com/pytorch/pytorch/issues/98222
# Without it: torch warns once.
_warn_of_loops: Callable[[bool], None] | None = getattr(
    getattr(torch._C, "_functorch", None), "_set_vmap_fallback_warning_enabled", None
)
# Copies of many tensors, allocated without a call for each: times one. https://github.com/pytorch/pytorch/issues/58833
# Without it: one copy after the other.
_multiply_all: Callable[..., Sequence[Tensor]] | None = getattr(torch, "_foreach_mul", None)
# Autograd calls a tensor's hooks when its gradient is computed and again when it is delivered.
# https://github.com/pytorch/pytorch/issues/61519
# Without it: hooks act twice, and a hook inside a linear head is not called.
HOOKS = "_backward_hooks"
# Values that were overwritten in place. https://docs.pytorch.org/docs/stable/notes/autograd.html
# Without it: a representation that was overwritten is not noticed.
VERSION = "_version"
# What a tensor is a view of: its hooks wait for a gradient too.
# https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/python_variable.cpp
# Without it: a hook on a weight that was cast and then transposed is not called.
BASE = "_base"
# How large the gradients in the trunk are, and the shape of the one that arrives at a node.
# https://github.com/pytorch/pytorch/blob/main/torch/autograd/graph.py
# Without it: eight tasks in one backward pass through any trunk, a backward pass per task for matrices of losses, and
# NaN of their missing labels is not kept out.
SIZES = "_input_metadata"
# Which operations came before which: autograd numbers its nodes as they are made. Torch 2.8 and older do not tell.
# https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.profile.html
# Without it: a balancer made after the forward is told another reason.
SEQUENCE = "_sequence_nr"

# What `nn.Linear` leaves in the graph for a matrix of samples, with and without a bias, and where it saves its input.
# The gradients of a linear head are products of what is saved. Without it: heads are passed by autograd, a dense
# gradient at z for each task; one head for all tasks takes a backward pass per task.
LINEAR_INPUT = {"AddmmBackward0": "_saved_mat1", "MmBackward0": "_saved_self"}
# `Tensor.t()`, by which `nn.Linear` takes its weight. Without it: as for LINEAR_INPUT.
TRANSPOSE = "TBackward0"
# `Tensor.to`, by which autocast changes types. Without it: under autocast as for LINEAR_INPUT.
CAST = "ToCopyBackward0"
# The nodes at which the graph ends, and the leaf that each adds to. https://docs.pytorch.org/docs/stable/autograd.html
# Without it: the package cannot be imported; nothing can be balanced without knowing the leaves.
LEAF_NODE = type(get_gradient_edge(torch.zeros((), requires_grad=True)).node)


def _copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor], non_blocking: bool = False) -> None:
    """One copy after the other."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, non_blocking=non_blocking)


# Copy each source into its target: many small copies in one kernel. https://github.com/pytorch/pytorch/issues/58833
# Without it: one copy after the other.
copy_all: Callable[..., None] = getattr(torch, "_foreach_copy_", _copy_each)


def _field_of_module(name: str, otherwise: Callable[[nn.Module], Any]) -> Callable[[nn.Module], dict[str, Any]]:
    return attrgetter(name) if hasattr(nn.Module(), name) else lambda module: dict(otherwise(module))


# A module's own parts, parameters and buffers by name, without a search for the names of all: of a BERT half a
# millisecond in every step. https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/module.py
# Without them: the functions of nn.Module, which are slower.
parts_of = _field_of_module("_modules", nn.Module.named_children)
parameters_of = _field_of_module("_parameters", lambda module: module.named_parameters(recurse=False))
buffers_of = _field_of_module("_buffers", lambda module: module.named_buffers(recurse=False))
# The hooks of a tensor, or None. Without it: as for HOOKS.
hooks_of: Callable[[Tensor], Any] = attrgetter(HOOKS) if hasattr(Tensor, HOOKS) else lambda tensor: None
# As `torch.autograd.backward`; the graph is freed. Without it: as for `_run`.
accumulate: Callable[[Sequence[Any], Sequence[Tensor]], None] = (
    torch.autograd.backward
    if _run is None
    else partial(_run, keep_graph=False, create_graph=False, inputs=(), allow_unreachable=True, accumulate_grad=True)
)


def leaf_of(node: Node) -> Tensor | None:
    """The leaf at which the graph ends here, if it does."""
    return node.variable if type(node) is LEAF_NODE else None  # type: ignore[attr-defined]


def linear_layer(node: Node) -> tuple[int, Tensor | None, Tensor | None] | None:
    """For the node of `torch.addmm` or `torch.mm`: which input is the left matrix, and both matrices as applied.

    None for any other node. Autograd's own error where one of the matrices has been overwritten since.
    """
    name = type(node).__name__
    if name not in LINEAR_INPUT or getattr(node, "_saved_alpha", 1) != 1 or getattr(node, "_saved_beta", 1) != 1:
        return None
    try:
        left: Tensor | None = getattr(node, LINEAR_INPUT[name])
        right: Tensor | None = node._saved_mat2  # type: ignore[attr-defined]
    except AttributeError:
        return None
    return int(name == "AddmmBackward0"), left, right


def release_saved(node: Node) -> bool:
    """Free what the node of `torch.addmm` or `torch.mm` has saved; whether there was something to free.

    https://docs.pytorch.org/docs/stable/notes/autograd.html#hooks-for-saved-tensors
    """
    freed = False
    for field in ("mat1", "self", "mat2") if type(node).__name__ in LINEAR_INPUT else ():
        try:
            getattr(node, f"_raw_saved_{field}").register_hooks(_drop, _second_backward)
            freed = True
        except (AttributeError, RuntimeError):  # another version of torch; freed already; overwritten
            continue
    return freed


def _drop(tensor: Tensor) -> None:
    return None


def _second_backward(dropped: None) -> Tensor:
    raise RuntimeError("Trying to backward through the graph a second time: the balancer has freed it")


def is_transpose(node: Node) -> bool:
    """Whether the node is that of `Tensor.t()`."""
    return type(node).__name__ == TRANSPOSE


def is_cast(node: Node) -> bool:
    """Whether the node is that of `Tensor.to`, by which autocast changes types."""
    return type(node).__name__ == CAST


def gradients_at(
    roots: Sequence[Any], gradients: Sequence[Tensor], targets: Sequence[Any], retain_graph: bool
) -> Sequence[Tensor | None]:
    """As `torch.autograd.grad` for tensors or gradient edges, with None at targets that are not reached."""
    if _run is None:
        return torch.autograd.grad(roots, targets, gradients, retain_graph=retain_graph, allow_unused=True)
    computed: Sequence[Tensor | None] = _run(
        tuple(roots),
        tuple(gradients),
        retain_graph,
        False,
        tuple(targets),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    return computed


def gradients_from(
    losses: Sequence[Tensor | None], targets: Sequence[Any], retain_graph: bool = False
) -> Sequence[Tensor | None]:
    """The gradients of all losses together at the targets, by one backward pass. A loss may be missing."""
    roots = [loss for loss in losses if loss is not None]
    return gradients_at(roots, _ones(roots), targets, retain_graph)


def _ones(losses: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each loss. New ones at every step, each with its own memory: some functions overwrite it."""
    dtype, device = losses[0].dtype, losses[0].device
    ones = torch.ones(len(losses), dtype=dtype, device=device).unbind()  # one kernel
    return [
        unit if loss.ndim == 0 and loss.dtype == dtype and loss.device == device else torch.ones_like(loss)
        for unit, loss in zip(ones, losses, strict=True)
    ]


def when_backward_ends(callback: Callable[[], None]) -> None:
    """Call `callback` at the end of the backward pass that is running."""
    if _queue_callback is not None:
        _queue_callback(callback)


@contextmanager
def hooks_disabled(tensors: Iterable[Tensor | None]) -> Iterator[None]:
    """Inside, the hooks on these tensors are not called, and what `retain_grad` keeps stays what it was.

    Autograd calls the hooks of a tensor whose gradient it is asked for. The gradient is delivered later by another
    backward pass, which calls them too: a hook that doubles a gradient would make it four times as large.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    hooked = [(hooks, [*hooks.items()]) for tensor in present if (hooks := getattr(tensor, HOOKS, None))]
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


def has_hooks(tensor: Tensor | None) -> bool:
    """Whether somebody waits for the gradient of a tensor that is not a leaf."""
    if tensor is None or tensor.is_leaf:
        return False
    return bool(getattr(tensor, HOOKS, None)) or tensor.retains_grad


def has_node_hooks(nodes: Iterable[Node]) -> bool:
    """Whether somebody waits for the gradients that these nodes receive or return.

    Autograd has no list of the hooks of a node, but the handle of a new hook refers to all of them.
    """
    for node in nodes:
        for register in (node.register_hook, node.register_prehook):
            handle = register(_no_change)
            hooks: Any = handle.hooks_dict_ref()
            del hooks[handle.id]  # as `handle.remove()` does, in half the time
            if hooks:
                return True
    return False


def _no_change(*gradients: Any) -> None:
    return None


def version(tensor: Tensor) -> int | None:
    """How often the tensor was changed in place; None where torch does not tell."""
    return getattr(tensor, VERSION, None)


def view_of(tensor: Tensor) -> Tensor | None:
    """The tensor that this one is a view of; None where it is none."""
    return getattr(tensor, BASE, None)


def gradient_entries(node: Node) -> int:
    """How many entries the gradients have that arrive at a node; 0 where torch does not tell."""
    return sum(math.prod(size.shape) for size in getattr(node, SIZES, ()) if not size.is_nested_tensor)


def arriving_shape(node: Node) -> tuple[int, ...] | None:
    """The shape of the gradient that arrives at a node with one output; None where torch does not tell."""
    arriving: Sequence[Any] = getattr(node, SIZES, ())
    return tuple(arriving[0].shape) if len(arriving) == 1 else None


def time_in_graph(node: Node | None = None) -> int:
    """A number that grows with every node that a thread makes: that of this node, or of one made now."""
    if node is None:
        with torch.inference_mode(False), torch.enable_grad():
            node = torch.zeros((), device="cpu", requires_grad=True).clone().grad_fn
    number: Callable[[], int] | None = getattr(node, SEQUENCE, None)
    return 0 if number is None else number()


@contextmanager
def vmap_warnings_disabled() -> Iterator[None]:
    """Inside, `torch.vmap` does not warn of operators that it loops over.

    A filter of `warnings` would do as well, but setting one makes Python show every warning again.
    """
    if _warn_of_loops is None:
        yield
        return
    _warn_of_loops(False)
    try:
        yield
    finally:
        _warn_of_loops(True)


def clone_all(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies in memory of their own; by one kernel where they have one type."""
    if _multiply_all is None or not tensors:
        return [tensor.clone() for tensor in tensors]
    return list(_multiply_all(tensors, 1))
