"""Finding the shared representation z: given by the caller, or left in the graph by a forward hook.

The hook writes z's values into the metadata of the autograd node that made it. The note lives exactly as long
as the graph, so nothing has to be released, a validation forward or a second call cannot be mistaken for the
one a loss came from, and copies of the model need no care.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

_NOTE = "excessmtl.representation"
_NOTED: set[type[Any]] = set()
"""The kinds of nodes on which there are notes: the others need not be asked."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A tensor at which the graph is cut: heads above, trunk below."""

    edge: GradientEdge | None
    stored: Tensor
    version: int | None
    """Of the values when they were taken; None: nobody else can change them, or nobody is going to look."""
    reference: Callable[[], Tensor | None]

    @property
    def values(self) -> Tensor:
        """What the trunk returned."""
        self.check_unchanged()
        return self.stored

    def check_unchanged(self) -> None:
        """A ValueError if the values have been overwritten since they were returned."""
        if self.version is not None and self.stored._version != self.version:
            raise ValueError(
                "the representation was changed in place after the shared module returned it; use an operation that "
                "is not in place, or pass the changed tensor as at=z"
            )

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.stored.numel()

    def tensor(self) -> Tensor | None:
        """The tensor itself, while it is alive and still stands where it stood in the graph."""
        tensor, edge = self.reference(), self.edge
        if tensor is None or edge is None or tensor.output_nr != edge.output_nr:
            return None
        return tensor if tensor.grad_fn in (edge.node, None) else None

    def without_graph(self) -> "Cut":
        """The values alone, which must be what they were, and stay so: they are the caller's memory."""
        self.check_unchanged()
        return replace(self, edge=None, reference=_gone)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has memory of its own, where nobody else can change the values."""
        return Cut, (None, self.values, None, _gone)

    def forgotten(self, values: Tensor | None = None) -> "Cut":
        """Nothing that could be walked again, with these values or its own."""
        return Cut(None, self.stored if values is None else values, None, _gone)


FindCut = Callable[[Node, int], Cut | None]


def no_cut(node: Node, output: int) -> Cut | None:
    """For walks through the whole graph."""
    return None


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from tensors_in(getattr(value, part.name))


def _note_outputs(module: nn.Module, args: Any, output: Any) -> None:
    if torch.compiler.is_compiling():  # metadata cannot be traced; a compiled `shared` is noted from outside
        return
    for tensor in tensors_in(output):
        if tensor.grad_fn is not None:
            _NOTED.add(type(tensor.grad_fn))
            notes = tensor.grad_fn.metadata.setdefault(_NOTE, {})  # type: ignore[attr-defined]  # as in `noted_by`
            notes[id(module), tensor.output_nr] = (tensor.detach(), tensor._version, weakref.ref(tensor))


def watch(module: nn.Module) -> None:
    """Note the outputs of `module` from now on (once, however many balancers watch it)."""
    if _note_outputs not in module._forward_hooks.values():
        module.register_forward_hook(_note_outputs)


def noted_by(module: nn.Module) -> FindCut:
    """Cuts at the outputs of `module`, as its hook noted them."""
    owner = id(module)
    found: dict[tuple[Node, int], Cut] = {}

    def find(node: Node, output: int) -> Cut | None:
        if type(node) not in _NOTED:
            return None
        notes = node.metadata.get(_NOTE)  # type: ignore[attr-defined]  # declared as a method, is a property
        if notes is None or (owner, output) not in notes:
            return None
        if (node, output) not in found:
            found[node, output] = Cut(GradientEdge(node, output), *notes[owner, output])
        return found[node, output]

    return find


def forget(cuts: Iterable[Cut]) -> None:
    """Let go of the values noted at these cuts, below which nothing is going to be walked again.

    The note would keep z in memory for as long as somebody keeps the losses: well into the next step, as a rule.
    """
    for cut in cuts:
        if cut.edge is not None:
            cut.edge.node.metadata.pop(_NOTE, None)  # type: ignore[attr-defined]  # as in `noted_by`


def _gone() -> None:
    return None


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def given(tensors: list[Tensor]) -> FindCut:
    """Cuts at the tensors the caller passed as `at=`."""
    cuts: dict[tuple[Node, int], Cut] = {}
    for tensor in tensors:
        edge = get_gradient_edge(tensor)
        reference: Callable[[], Tensor | None] = partial(_itself, tensor)
        cuts[edge.node, edge.output_nr] = Cut(edge, tensor.detach(), tensor._version, reference)
    return lambda node, output: cuts.get((node, output))
