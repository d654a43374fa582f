"""Every private name of PyTorch that the library uses, in one place.

`NAMES` lists them with the reason. Each function below works without its name: a step then takes a little longer, or
takes the way of the reference engine, but it never fails. `missing()` tells which names the installed torch has lost.
"""

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge

F = TypeVar("F", bound=Callable[..., Any])
NAMES = {
    # `torch.autograd.grad` checks shapes and types first, which are known here: 20 microseconds a call.
    # https://github.com/pytorch/pytorch/blob/main/torch/autograd/graph.py
    "autograd.graph._engine_run_backward": "without it: torch.autograd.grad and torch.autograd.backward",
    # Autograd calls a tensor's hooks when its gradient is computed and again when it is delivered.
    # https://github.com/pytorch/pytorch/issues/61519
    "Tensor._backward_hooks": "without it: hooks act twice",
    # Values that were overwritten in place. https://docs.pytorch.org/docs/stable/notes/autograd.html
    "Tensor._version": "without it: a representation that was overwritten is not noticed",
    # torch.vmap warns of operators that it loops over, which is still faster than one backward pass per task.
    # https://github.com/pytorch/pytorch/issues/98222
    "_C._functorch._set_vmap_fallback_warning_enabled": "without it: torch warns once",
    # Many small copies in one kernel. https://github.com/pytorch/pytorch/issues/58833
    "_foreach_copy_": "without it: one copy after the other",
    # How large the gradients in the trunk are.
    # https://github.com/pytorch/pytorch/blob/main/torch/autograd/graph.py
    "autograd.graph.Node._input_metadata": "without it: eight tasks in one backward pass through any trunk",
    # Which operations came before which: autograd numbers its nodes as they are made.
    # https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.profile.html
    "autograd.graph.Node._sequence_nr": "without it: a balancer made after the forward is told another reason",
    # Python may call back when a backward pass ends; DDP and FSDP do the same.
    # https://github.com/pytorch/pytorch/issues/35548
    "autograd.Variable._execution_engine.queue_callback": "without it: losses under FSDP are good for one backward",
    # Which DistributedDataParallel runs a module, and whether it is inside `join()`.
    # https://github.com/pytorch/pytorch/blob/main/torch/nn/parallel/distributed.py
    "nn.parallel.DistributedDataParallel._active_ddp_module": "without it: `join()` is not refused",
    # A module's parameters without a traversal of all its submodules at every step.
    "nn.Module._parameters": "without it: Module.parameters() at every step",
    "nn.Module._modules": "without it: Module.parameters() at every step",
    # `torch.compiler.disable` imports the compiler, which takes two seconds; this waits until the function is called.
    # https://github.com/pytorch/pytorch/blob/main/torch/_compile.py
    "_disable_dynamo": "without it: torch.compiler.disable, and a slow import of this library",
    # What `torch.compile(module)` returns holds the module. https://github.com/pytorch/pytorch/issues/101107
    "OptimizedModule._orig_mod": "without it: pass the module itself as shared, not the compiled one",
    # Compiled backward functions may overwrite what they have saved, and then refuse to run twice.
    # https://github.com/pytorch/pytorch/pull/130580
    "_functorch.config.donated_buffer": "without it: torch refuses the second run, and says what to set",
}
COMPILED = "CompiledFunctionBackward"
"""The node that stands for a whole compiled forward."""
_compiler = "torch._functorch.aot_autograd"
"""Imported by the first `torch.compile` that is run: until then there are no such nodes."""
_LINEAR_INPUT = {"AddmmBackward0": "_saved_mat1", "MmBackward0": "_saved_self"}
"""What `nn.Linear` leaves in the graph for a matrix of samples, with and without a bias, and where it saves its input.

https://github.com/pytorch/pytorch/blob/main/tools/autograd/derivatives.yaml
"""


def missing() -> list[str]:
    """The names that the installed torch no longer has."""
    compiled = torch.compile(nn.Identity(), backend="eager")  # first: it imports what the names below are in
    lost = [] if hasattr(compiled, "_orig_mod") else ["OptimizedModule._orig_mod"]
    lost += [name for name in NAMES if not name.startswith(("nn.Module", "OptimizedModule")) and not _has(name)]
    lost += [f"nn.Module.{table}" for table in ("_parameters", "_modules") if not hasattr(nn.Module(), table)]
    node = torch.addmm(torch.zeros(2), torch.zeros(3, 2), torch.zeros(2, 2, requires_grad=True)).grad_fn
    fields = ("_saved_mat1", "_saved_mat2", "_saved_beta", "_saved_alpha")
    lost += [f"AddmmBackward0.{field}" for field in fields if not hasattr(node, field)]
    leaf = torch.zeros(2, 2, 2, requires_grad=True)
    lost += [] if selection(leaf[:, 0].grad_fn) == (1, 0) else ["SelectBackward0"]  # type: ignore[arg-type]
    return lost + ([] if is_cast(leaf.double().grad_fn) else ["ToCopyBackward0"])  # type: ignore[arg-type]


def _has(name: str) -> bool:
    try:
        attrgetter(name)(torch)
    except AttributeError:
        return False
    return True


_run: Callable[..., Any] | None = getattr(torch.autograd.graph, "_engine_run_backward", None)
_warn_of_loops: Callable[[bool], None] | None = getattr(
    getattr(torch._C, "_functorch", None), "_set_vmap_fallback_warning_enabled", None
)
_queue_callback: Callable[..., None] | None = getattr(
    getattr(torch.autograd.Variable, "_execution_engine", None), "queue_callback", None
)
_copy_all: Callable[..., None] | None = getattr(torch, "_foreach_copy_", None)
_HOOKS = attrgetter("_backward_hooks"), attrgetter("_post_accumulate_grad_hooks")
_SIZES = "_input_metadata"
_disable: Callable[..., Any] = getattr(torch, "_disable_dynamo", None) or torch.compiler.disable


def gradients_at(
    roots: Sequence[Any], gradients: Sequence[Tensor], targets: Sequence[Any], retain_graph: bool
) -> Sequence[Tensor | None]:
    """As `torch.autograd.grad` for tensors or gradient edges, with None at targets that are not reached."""
    if _run is None:
        return torch.autograd.grad(roots, targets, gradients, retain_graph=retain_graph, allow_unused=True)
    found: Sequence[Tensor | None] = _run(
        tuple(roots),
        tuple(gradients),
        retain_graph,
        False,
        tuple(targets),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    return found


def accumulate(roots: Sequence[Any], gradients: Sequence[Tensor]) -> None:
    """As `torch.autograd.backward`; the graph is freed."""
    if _run is None:
        torch.autograd.backward(roots, gradients)
    else:
        _run(tuple(roots), tuple(gradients), False, False, (), allow_unreachable=True, accumulate_grad=True)


@contextmanager
def hooks_disabled(tensors: Iterable[Tensor | None]) -> Iterator[None]:
    """Inside, the hooks on these tensors are not called, and what `retain_grad` keeps stays what it was.

    Autograd calls the hooks of a tensor whose gradient it is asked for. The gradient is delivered later by another
    backward pass, which calls them too: a hook that doubles a gradient would make it four times as large.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    hooked = [(hooks, [*hooks.items()]) for tensor in present if (hooks := getattr(tensor, "_backward_hooks", None))]
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


def version(tensor: Tensor) -> int | None:
    """How often the tensor was changed in place; None where torch does not tell."""
    return getattr(tensor, "_version", None)


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


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor], non_blocking: bool = False) -> None:
    """Copy each source into its target; in one kernel where they have one type."""
    if _copy_all is not None:
        _copy_all(targets, sources, non_blocking=non_blocking)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=non_blocking)


def when_backward_ends(callback: Callable[[], None]) -> None:
    """Call `callback` at the end of the backward pass that is running."""
    if _queue_callback is not None:
        _queue_callback(callback)


def linear_layer(node: Node) -> tuple[int, Tensor | None, Tensor | None] | None:
    """For the node of `torch.addmm` or `torch.mm`: which input is the left matrix, and both matrices as applied.

    None for any other node. Autograd's own error where one of the matrices has been overwritten since.
    """
    name = type(node).__name__
    if name not in _LINEAR_INPUT or getattr(node, "_saved_alpha", 1) != 1 or getattr(node, "_saved_beta", 1) != 1:
        return None
    try:
        left: Tensor | None = getattr(node, _LINEAR_INPUT[name])
        right: Tensor | None = node._saved_mat2  # type: ignore[attr-defined]
    except AttributeError:
        return None
    return int(name == "AddmmBackward0"), left, right


_LEAF_NODE = type(get_gradient_edge(torch.zeros((), requires_grad=True)).node)
"""The type of the nodes that add to `.grad` of a leaf."""


def leaf_of(node: Node) -> Tensor | None:
    """The leaf at which the graph ends here, if it does."""
    return node.variable if type(node) is _LEAF_NODE else None  # type: ignore[attr-defined]


def has_node_hooks(nodes: Iterable[Node]) -> bool:
    """Whether somebody waits for the gradients that these nodes receive or return.

    Autograd has no list of the hooks of a node, but the handle of a new hook refers to all of them.
    """
    for node in nodes:
        for register in (node.register_hook, node.register_prehook):
            handle = register(_no_change)
            hooks = handle.hooks_dict_ref()
            handle.remove()
            if hooks:
                return True
    return False


def _no_change(*gradients: Any) -> None:
    return None


def has_hooks(tensor: Tensor | None) -> bool:
    """Whether somebody waits for the gradient of a tensor that is not a leaf."""
    if tensor is None or tensor.is_leaf:
        return False
    return bool(getattr(tensor, "_backward_hooks", None)) or tensor.retains_grad


def gradient_entries(node: Node) -> int:
    """How many entries the gradients have that arrive at a node; 0 where torch does not tell."""
    return sum(math.prod(one.shape) for one in getattr(node, _SIZES, ()) if not one.is_nested_tensor)


def arriving_shape(node: Node) -> tuple[int, ...] | None:
    """The shape of the gradient that arrives at a node with one output; None where torch does not tell."""
    arriving: Sequence[Any] = getattr(node, _SIZES, ())
    return tuple(arriving[0].shape) if len(arriving) == 1 else None


def time_in_graph(node: Node | None = None) -> int:
    """A number that grows with every node that a thread makes: that of this node, or of one made now."""
    if node is None:
        with torch.inference_mode(False), torch.enable_grad():
            node = torch.zeros((), device="cpu", requires_grad=True).clone().grad_fn
    number: Callable[[], int] | None = getattr(node, "_sequence_nr", None)
    return 0 if number is None else number()


def selection(node: Node) -> tuple[int, int] | None:
    """For the node of `tensor.select(dim, index)` or `tensor[:, index]`: dimension and index. None for any other."""
    if type(node).__name__ != "SelectBackward0":
        return None
    try:
        saved = node._saved_dim, node._saved_index  # type: ignore[attr-defined]
    except AttributeError:
        return None
    dim, index = (number - 2**64 if number >= 2**63 else number for number in saved)  # torch returns them unsigned
    return dim, index


def is_cast(node: Node) -> bool:
    """Whether the node is that of `Tensor.to`, by which autocast changes types."""
    return type(node).__name__ == "ToCopyBackward0"


_data_parallel: "weakref.WeakKeyDictionary[nn.Module, Any]" = weakref.WeakKeyDictionary()
"""Modules that DistributedDataParallel has run, and a reference to it."""


def note_data_parallel(module: nn.Module) -> None:
    """Called in a module's forward: remember the DistributedDataParallel that runs it, if one does."""
    if dist.is_available() and dist.is_initialized():
        active = getattr(nn.parallel.DistributedDataParallel, "_active_ddp_module", None)
        if active is not None:
            _data_parallel[module] = weakref.ref(active)


def inside_join(module: nn.Module | None) -> bool:
    """Whether the module is run by DistributedDataParallel inside its `join()`."""
    reference = None if module is None else _data_parallel.get(module)
    return bool(reference and getattr(getattr(reference(), "_join_config", None), "enable", False))


def release_saved(node: Node) -> bool:
    """Free what the node of `torch.addmm` or `torch.mm` has saved; whether there was something to free.

    https://docs.pytorch.org/docs/stable/notes/autograd.html#hooks-for-saved-tensors
    """
    freed = False
    for field in ("mat1", "self", "mat2") if type(node).__name__ in _LINEAR_INPUT else ():
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


def tables(module: nn.Module) -> list[Any] | None:
    """The dictionaries in which a module keeps its own parameters and submodules; None where torch has others."""
    found = [getattr(module, name, None) for name in ("_parameters", "_modules")]
    return None if None in found else found


def outside_compiled_code(function: F) -> F:
    """A decorator: compiled code is interrupted for a call of the function, which runs as it is."""
    disabled: F = _disable(function)
    return disabled


def original_of(module: nn.Module) -> nn.Module:
    """The module itself where it is one that `torch.compile` returned."""
    while isinstance(original := getattr(module, "_orig_mod", None), nn.Module):
        module = original
    return module


def compiled_among(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that stand for a whole compiled forward. Nothing is searched before something has been compiled."""
    return [node for node in nodes if type(node).__name__ == COMPILED] if _compiler in sys.modules else []


@contextmanager
def repeatable(nodes: Iterable[Node]) -> Iterator[None]:
    """Inside, compiled backward functions among these nodes may run any number of times, the graph being retained.

    The buffers that one of them would overwrite are copied for every run. Where that does not work, torch refuses the
    second run with a sentence that says what to set.
    """
    config = getattr(torch._functorch, "config", None)
    compiled = [] if config is None else compiled_among(nodes)
    if config is not None and compiled and all(map(_copy_donated, compiled)):
        with config.patch(donated_buffer=False):  # or torch refuses the second run all the same
            yield
    else:
        yield


def _copy_donated(node: Any) -> bool:
    """Let the compiled backward function of this node work on copies of what it would overwrite; False: it cannot.

    There is nothing to copy where its first run retained the graph: it was then compiled to overwrite nothing.
    """
    try:
        compiled = type(node)._forward_cls.metadata
        donated = [place - compiled.num_symints_saved_for_bw for place in compiled.bw_donated_idxs or ()]
        saved = [node._raw_saved_tensors[place] for place in donated]
    except (AttributeError, IndexError):
        return False
    for tensor in saved:
        with suppress(RuntimeError):  # done already
            tensor.register_hooks(_same, torch.clone)
    return True


def _same(tensor: Tensor) -> Tensor:
    return tensor
