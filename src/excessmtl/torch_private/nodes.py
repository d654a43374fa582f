"""What the nodes of autograd's graph are, by their names, and what they have saved.

Names and fields of most nodes are made from https://github.com/pytorch/pytorch/blob/main/tools/autograd/derivatives.yaml
(`_saved_*` by tools/autograd/gen_autograd_functions.py), and change when an operator gets another formula there. Nobody
promises them, so every question has an answer for nodes that are not recognised, and that answer leads to another way
of computing the same gradients, unless something else is written beside it.
"""

import sys
from collections.abc import Iterable, Sequence, Set
from typing import Any

from torch import Tensor
from torch.autograd.graph import Node

# `tensor.select(dim, index)` and `tensor[:, index]`: a column of one head for all tasks, a position of a sequence.
# Without it: a backward pass per task for one head, and the gradient at the whole sequence for each task.
SELECT = "SelectBackward0"
# `tensor.unbind()`, which makes the losses of tasks of a row. Without it: a backward pass per task.
UNBIND = "UnbindBackward0"
# `tensor.sum(dim)`, by which a matrix of losses is averaged over samples. Without it: a backward pass per task.
SUM = "SumBackward1"
# Where the shapes are equal, the gradient at an entry depends on the same entry of what arrives: a matrix of losses was
# computed column by column. Without one of them: a backward pass per task.
ENTRY_BY_ENTRY = frozenset(
    f"{name}Backward0"
    for name in (
        *("Abs", "Add", "Div", "Exp", "Log", "Log1P", "MaskedFill", "Mul", "Neg", "Pow", "Sigmoid", "Softplus", "Sub"),
        *("Tanh", "ToCopy", "Where", "MseLoss", "HuberLoss", "SmoothL1Loss"),
        *("BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
    )
)
# Operations that move entries or add them up: the way from a matrix of losses back to what its entries came from.
# Without one of them: the NaN of a missing label passes it. The tasks behind it are then left out of the step, and the
# balancer says so with a remedy.
REARRANGING = frozenset(
    f"{name}Backward{number}"
    for names, number in (
        ("Cat Stack Transpose T Permute View UnsafeView ReshapeAlias Unsqueeze Squeeze Select Slice Index", 0),
        ("Unsqueeze Squeeze Sum Mean", 1),
        ("Squeeze", 2),
    )
    for name in names.split()
)
# Products and quotients, whose derivative by a learned factor is a sum over the batch. Without it: as for REARRANGING.
PRODUCT, QUOTIENT = "MulBackward0", "DivBackward0"
# `checkpoint(use_reentrant=True)`, which hides its parameters from `torch.autograd.grad`.
# https://github.com/pytorch/pytorch/blob/main/torch/utils/checkpoint.py
# Without it: methods that look at gradients of shared parameters do not see those that are inside, and nobody says so.
CHECKPOINT = "CheckpointFunctionBackward"
# What DistributedDataParallel puts behind a model's outputs.
# https://github.com/pytorch/pytorch/blob/main/torch/nn/parallel/distributed.py
# Without it: static_graph=True is not refused, and with find_unused_parameters=True there is a warning too many.
DDP_OUTPUT = "_DDPSinkBackward"
# A whole compiled forward. https://github.com/pytorch/pytorch/blob/main/torch/_functorch/_aot_autograd
# Without it: torch refuses a second run of a compiled backward, and says what to set.
COMPILED = "CompiledFunctionBackward"
COMPILER = "torch._functorch.aot_autograd"
"""Imported by the first `torch.compile` that is run: until then there are no such nodes."""


def selection(node: Node) -> tuple[int, int] | None:
    """For the node of `tensor.select(dim, index)` or `tensor[:, index]`: dimension and index. None for any other."""
    if type(node).__name__ != SELECT:
        return None
    try:
        saved = node._saved_dim, node._saved_index  # type: ignore[attr-defined]
    except AttributeError:
        return None
    dim, index = (number - 2**64 if number >= 2**63 else number for number in saved)  # torch returns them unsigned
    return dim, index


def is_unbind(node: Node) -> bool:
    """Whether the node is that of `tensor.unbind()`."""
    return type(node).__name__ == UNBIND


def sums_over_samples(node: Node) -> bool:
    """Whether the node is that of `tensor.sum(0)`."""
    return type(node).__name__ == SUM and tuple(getattr(node, "_saved_dim", ())) == (0,)


def works_entry_by_entry(node: Node) -> bool:
    """Whether the gradient at an entry depends on the same entry of what arrives, where the shapes are equal."""
    return type(node).__name__ in ENTRY_BY_ENTRY


def rearranges_entries(node: Node) -> bool:
    """Whether the operation moves entries or adds them up, and does nothing else to them."""
    return type(node).__name__ in REARRANGING


def passed_through(node: Node, gradient: Tensor) -> Sequence[Tensor | None]:
    """What a node makes of a gradient, for each of its inputs; None where torch does not tell.

    Nodes can be called, though their type does not say so. Without it: as for REARRANGING.
    https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/python_cpp_function.cpp
    """
    if not callable(node):
        return [None] * len(node.next_functions)
    parts = node(gradient)
    return parts if isinstance(parts, tuple) else (parts,)


def derivative_by_factor(node: Node, position: int) -> Tensor | None:
    """The derivative of a product or quotient by one of its inputs, before it is summed to the shape of that input.

    None for other operations, and where torch does not tell.
    """
    name = type(node).__name__
    if name not in (PRODUCT, QUOTIENT):
        return None
    try:
        mine, other = (getattr(node, field, None) for field in ("_saved_self", "_saved_other"))
    except RuntimeError:  # freed or overwritten: the backward pass is going to say so
        return None
    if name == PRODUCT:
        derivative = other if position == 0 else mine
    else:
        derivative = None if position == 0 or mine is None or other is None else -mine / other.square()
    return None if derivative is None else derivative.detach()


def is_reentrant_checkpoint(node: Node) -> bool:
    """Whether the node is that of a checkpoint of the older kind, `use_reentrant=True`."""
    return type(node).__name__ == CHECKPOINT


def is_ddp_output(node: Node) -> bool:
    """Whether DistributedDataParallel has put all outputs of a model behind this node."""
    return type(node).__name__ == DDP_OUTPUT


def has_static_graph(node: Any) -> bool:
    """Whether a node for which `is_ddp_output` holds was made under `static_graph=True`."""
    reference = getattr(node, "ddp_weakref", None)
    return reference is not None and bool(getattr(reference(), "static_graph", False))


def compiled_among(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that stand for a whole compiled forward. Nothing is searched before something has been compiled."""
    return [node for node in nodes if type(node).__name__ == COMPILED] if COMPILER in sys.modules else []


def includes_compiled(node_types: Set[str]) -> bool:
    """Whether one of these types of nodes stands for a whole compiled forward."""
    return COMPILED in node_types
