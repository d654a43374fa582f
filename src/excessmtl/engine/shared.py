"""A balancer's reference to the shared part of a model: not a submodule, never copied with the balancer alone."""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import is_, methodcaller
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from excessmtl.engine import private_torch
from excessmtl.engine.representation import (
    FindRepresentation,
    note_outputs,
    note_outputs_unless_compiled,
    noted_by,
)

_values = methodcaller("values")


def parameters_in(shared: Any, argument: str = "shared") -> list[Tensor]:
    """The parameters in a module, a tensor, or an iterable of tensors; a ValueError where there are none."""
    if isinstance(shared, nn.Module):
        parameters: list[Tensor] = list(shared.parameters())
    elif isinstance(shared, Tensor):
        parameters = [shared]
    elif isinstance(shared, Iterable):
        parameters = list({id(parameter): parameter for parameter in shared}.values())  # once each, as in a module
    else:
        found = type(shared).__name__
        raise ValueError(f"{argument} must be a module or parameters, found {found}; pass e.g. model.encoder")
    for parameter in parameters:
        if not isinstance(parameter, Tensor) or not parameter.is_leaf:
            found = f"a {type(parameter).__name__}" if not isinstance(parameter, Tensor) else "a tensor with a history"
            raise ValueError(f"{argument} must hold leaf tensors, found {found}; pass model.encoder.parameters()")
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(
                f"{argument} has a parameter without a shape yet; run one forward before making the balancer"
            )
    if not parameters:
        raise ValueError(f"{argument} has no parameters; pass the module or parameters that all tasks share")
    return parameters


class Shared:
    """The shared module or parameters, and the layer GradNorm looks at.

    A deep copy refers to the copied model when model and balancer are copied together, in either order, and to
    the same model when the balancer is copied alone.
    """

    def __init__(self, shared: nn.Module | Iterable[Tensor], layer: Any = None) -> None:
        parameters = parameters_in(shared)
        is_module = isinstance(shared, nn.Module)
        self._target: Any = private_torch.original_of(shared) if is_module else parameters  # type: ignore[arg-type]
        self._compiled: nn.Module | None = shared if is_module and shared is not self._target else None  # type: ignore[assignment]
        """What `torch.compile` made of the shared module, where that was given."""
        self._layer: Any = layer if layer is None or isinstance(layer, nn.Module | Tensor) else list(layer)
        self._copies: dict[int, Any] | None = None
        self._listed: ParameterList | None = None
        self._watch()
        if layer is not None:
            mine = {id(parameter) for parameter in parameters}
            if any(id(parameter) not in mine for parameter in parameters_in(self._layer, "layer")):
                raise ValueError("layer has parameters that are not in shared; pass a part of the shared module")

    def _watch(self) -> None:
        """Note the outputs of the module from now on, for as long as this object lives."""
        if isinstance(self._target, nn.Module):
            called = self._target if self._compiled is None else self._compiled
            watch = _watches.get(called)
            if watch is None or not watch.handles:
                watch = _watches[called] = _Watch(self._target, self._compiled)
            watch.users += 1
            weakref.finalize(self, watch.release)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shared":
        copied = object.__new__(Shared)
        self._resolve()
        # What the enclosing copy also copies is only known when it is done, so it is looked up at first use.
        copied._target, copied._compiled, copied._layer = self._target, self._compiled, self._layer
        copied._copies, copied._listed = memo, None
        return copied

    def __getstate__(self) -> dict[str, Any]:
        self._resolve()
        return {**self.__dict__, "_listed": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._copies = {}

    def _resolve(self) -> None:
        if self._copies is None:
            return
        copies, self._copies, self._listed = self._copies, None, None

        def copy_of(value: Any) -> Any:
            if isinstance(value, list):
                return [copy_of(item) for item in value]
            return copies.get(id(value), value)

        self._target, self._compiled, self._layer = map(copy_of, (self._target, self._compiled, self._layer))
        self._watch()

    @property
    def module(self) -> nn.Module | None:
        """The shared module, or None where parameters were given."""
        self._resolve()
        return self._target if isinstance(self._target, nn.Module) else None

    @property
    def parameters(self) -> list[Tensor]:
        """All shared parameters, frozen ones included."""
        return list(self._target) if self.module is None else self._list.parameters

    @property
    def latest(self) -> list[Tensor]:
        """All shared parameters as they were listed last."""
        return self._target if self.module is None else self._list.listed

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all shared parameters."""
        return frozenset(map(id, self._target)) if self.module is None else self._list.ids

    @property
    def _list(self) -> "ParameterList":
        if self._listed is None:
            self._listed = ParameterList(self._target)
        return self._listed

    @property
    def device(self) -> torch.device:
        """Where the first parameter is."""
        module = self.module
        first: Tensor = next(iter(self._target if module is None else module.parameters()))
        return first.device

    @property
    def trainable(self) -> dict[int, Tensor]:
        """The shared parameters that require a gradient, by their position among all of them."""
        return {i: parameter for i, parameter in enumerate(self.parameters) if parameter.requires_grad}

    @property
    def layer(self) -> Sequence[Tensor]:
        """The parameters GradNorm looks at: the last shared weight matrix unless the user chose."""
        self._resolve()
        if self._layer is not None:
            chosen = [one for one in parameters_in(self._layer, "layer") if one.requires_grad]
            if not chosen:
                raise ValueError("layer has no parameter that wants a gradient; choose a layer that is trained")
            return chosen
        trainable = list(self.trainable.values())
        matrices = [parameter for parameter in trainable if parameter.ndim >= 2]
        return (matrices or trainable)[-1:]

    @property
    def find_representation(self) -> FindRepresentation | None:
        """Finds in a graph the outputs of the module and marked tensors; None where there are neither."""
        return noted_by(self.module)


class _Watch:
    """The hooks that note a module's outputs; they go with the last balancer that needs them.

    The hook of a module also sees the outputs of its compiled form, for which compiled code is interrupted if need be.
    Where the compiled form is known, a hook on that does it without, also under `fullgraph=True`.
    """

    def __init__(self, module: nn.Module, compiled: nn.Module | None) -> None:
        hooks = (
            {module: note_outputs}
            if compiled is None
            else {
                module: note_outputs_unless_compiled,
                compiled: note_outputs,
            }
        )
        self.handles: list[RemovableHandle] = []
        for called, note in hooks.items():
            for key, hook in list(called._forward_hooks.items()):
                if hook is note:  # a copy of the module has a copy of the hook, and nobody to remove it
                    del called._forward_hooks[key]
            self.handles.append(called.register_forward_hook(note))
        self.users = 0

    def release(self) -> None:
        """One balancer less."""
        self.users -= 1
        if not self.users:
            for handle in self.handles:
                handle.remove()
            self.handles = []


_watches: "weakref.WeakKeyDictionary[nn.Module, _Watch]" = weakref.WeakKeyDictionary()


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
