"""Finding the shared representation z in the autograd graph: given by the caller, or noted there in the forward.

A forward hook, or `representation` inside the model, writes z into the metadata of the autograd node that made it. The
note lives exactly as long as the graph, so nothing has to be released, and a validation forward or a second call cannot
be mistaken for the one a loss came from. Notes are made outside of compiled code, which is interrupted for them.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from excessmtl import torch_private

T = TypeVar("T")
AROUND = (
    "outside shared both through the representation and around it; pass at= with a tuple of all tensors that heads take"
)
_NOTE = "excessmtl.representation"
_USED = "excessmtl.used"
_MARKED = 0
"""Stands in a note for `representation`, where otherwise the id of a module stands."""
_NEARBY = 50
"""Nodes below a marked tensor in which notes of a module are looked for."""
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
"""torch 2.6 does not tell exporting from compiling; compiled code is not here, see `outside_compiled_code`."""
_any_marked = False
"""Whether `representation` has been called at all."""
_noted: set[str] = set()
"""Names of the node types that have had a note: the others need not be asked, which is much faster."""


@dataclass(frozen=True, eq=False)
class Representation:
    """A tensor between the heads above it and the trunk below it."""

    edge: GradientEdge | None
    """Where it is in the graph; None where the graph is gone."""
    stored: Tensor
    """Its values, detached."""
    version: int | None
    """Of the values when they were taken; None where they need no check."""
    reference: Callable[[], Tensor | None]

    @property
    def values(self) -> Tensor:
        """What the trunk returned."""
        self.check_unchanged()
        return self.stored

    def check_unchanged(self) -> None:
        """A ValueError if the values have been overwritten since they were returned."""
        if self.version is not None and torch_private.version(self.stored) != self.version:
            raise ValueError(
                "the representation was changed in place after the shared module returned it; use an operation that "
                "is not in place, or pass the changed tensor as at=z"
            )

    def tensor(self) -> Tensor | None:
        """The tensor itself, while it is alive and still at the same place in the graph."""
        tensor, edge = self.reference(), self.edge
        if tensor is None or edge is None or tensor.output_nr != edge.output_nr:
            return None
        return tensor if tensor.grad_fn in (edge.node, None) else None

    def without_graph(self) -> "Representation":
        """The values alone. They are still checked, because the memory is the caller's."""
        self.check_unchanged()
        return Representation(None, self.stored, self.version, _gone)

    def with_values(self, values: Tensor) -> "Representation":
        """Other values, without a graph and without a check."""
        return Representation(None, values, None, _gone)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy owns its values, so nobody else can change them."""
        return Representation, (None, self.values, None, _gone)


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


def representation(z: T) -> T:
    """Mark z as the shared representation, and return it: call this in a model's forward, where the heads take z.

    The balancer then needs no `at=z`, and `shared` may be a list of parameters. A model that is compiled as a whole is
    compiled in two parts, up to here and from here on. `z`: a tensor, or tensors in nested tuples, lists, mappings and
    dataclasses.
    """
    if torch.is_grad_enabled():
        _note_marked(z)
    return z


def note_outputs(module: nn.Module, args: Any, output: Any) -> None:
    """A forward hook: note every output of the module at its node in the graph, where there is one."""
    if torch.is_grad_enabled():  # else compiled code need not be interrupted
        _note_of_module(module, output)


@torch_private.outside_compiled_code
def _note_of_module(module: nn.Module, output: Any) -> None:
    module = torch_private.original_of(module)
    torch_private.note_data_parallel(module)
    _note(id(module), output)


def note_outputs_unless_compiled(module: nn.Module, args: Any, output: Any) -> None:
    """The same for a module whose compiled form has a hook of its own, so that compiled code is not interrupted."""
    if not torch.compiler.is_compiling():
        note_outputs(module, args, output)


@torch_private.outside_compiled_code
def _note_marked(z: Any) -> None:
    global _any_marked
    _any_marked = True
    _note(_MARKED, z)


def _note(owner: int, outputs: Any) -> None:
    # Metadata cannot be traced or exported.
    if torch.jit.is_tracing() or _is_exporting():  # type: ignore
        return
    for tensor in tensors_in(outputs):
        if tensor.grad_fn is not None:
            _noted.add(type(tensor.grad_fn).__name__)
            notes = tensor.grad_fn.metadata.setdefault(_NOTE, {})  # type: ignore[attr-defined]  # a property
            notes[owner, tensor.output_nr] = (tensor.detach(), torch_private.version(tensor), weakref.ref(tensor))


class FindRepresentation:
    """From a node and the number of one of its outputs to the representation there, if there is one.

    It is one of the `tensors`, or has been noted for one of the `owners`. Each is made once, and known by its id.
    """

    def __init__(self, owners: Sequence[int], tensors: Sequence[Tensor] = ()) -> None:
        self._owners = owners
        self._known: dict[tuple[Node, int], Representation] = {}
        for tensor in tensors:
            edge, version = get_gradient_edge(tensor), torch_private.version(tensor)
            z = Representation(edge, tensor.detach(), version, weakref.ref(tensor))
            self._known[edge.node, edge.output_nr] = z
        self.types: Set[str] = _noted if owners else {type(node).__name__ for node, _ in self._known}
        """Names of the types of nodes that can have one: who asks for many nodes asks for these alone."""

    def __call__(self, node: Node, output: int) -> Representation | None:
        """The representation that this output of the node is."""
        z = self._known.get((node, output))
        if z is None and type(node).__name__ in _noted:
            notes = node.metadata.get(_NOTE, {})  # type: ignore[attr-defined]  # a property
            note = next((notes[owner, output] for owner in self._owners if (owner, output) in notes), None)
            if note is not None:
                z = self._known[node, output] = Representation(GradientEdge(node, output), *note)
        return z


def noted_by(modules: Sequence[nn.Module]) -> FindRepresentation | None:
    """Finds the outputs of the modules that hooks noted, and what `representation` has marked; None: neither exists."""
    return FindRepresentation((_MARKED, *map(id, modules))) if modules or _any_marked else None


def given(tensors: Sequence[Tensor]) -> FindRepresentation:
    """Finds the tensors that the caller passed as `at=`."""
    return FindRepresentation((), tensors)


def forget(representations: Iterable[Representation]) -> None:
    """Drop the notes, which would keep z in memory for as long as somebody keeps the losses."""
    nodes = [z.edge.node for z in representations if z.edge is not None]
    for node in nodes:
        metadata: dict[str, Any] = node.metadata  # type: ignore[assignment]  # a property
        metadata.pop(_NOTE, None)
        metadata[_USED] = True
    # An output of the shared module may lie a little below what was marked, with a note of its own.
    seen = set(nodes)
    for node in nodes if _any_marked else ():  # grows while it is read
        below = [child for child, _ in node.next_functions if child is not None and child not in seen]
        nodes.extend(below[: max(0, _NEARBY - len(nodes))])
        seen.update(below)
        node.metadata.pop(_NOTE, None)  # type: ignore[attr-defined]  # a property


def used(node: Node) -> bool:
    """Whether a step has been taken with a representation that this node made."""
    return type(node).__name__ in _noted and _USED in node.metadata  # type: ignore[operator]  # a property


def stopped_at(representations: Sequence[Representation]) -> AbstractContextManager[None]:
    """Inside, gradients that arrive at a representation go no further.

    One tensor of the representation may lie below another (a pyramid, a recurrent trunk). What it gets through the
    upper one is delivered later with the upper one's share; without this it would be counted twice.
    """
    return _prehooks(representations, _zeros)


def nothing_below(representations: Sequence[Representation]) -> AbstractContextManager[None]:
    """Inside, a ValueError where a gradient passes a representation, on its way to a leaf of a head that lies below.

    A skip connection, or a trunk that uses a parameter of a head, may appear at any step, and the graph below the
    representation is not searched in every step.
    """
    return _prehooks(representations, _passed)


@contextmanager
def _prehooks(representations: Sequence[Representation], hook: Callable[..., Any]) -> Iterator[None]:
    handles = [z.edge.node.register_prehook(hook) for z in representations if z.edge is not None]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _passed(gradients: object) -> None:
    raise ValueError(f"a loss reaches a tensor {AROUND}")


def _zeros(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    return tuple(None if gradient is None else torch.zeros_like(gradient) for gradient in gradients)


def _gone() -> None:
    return None
