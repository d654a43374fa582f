"""A balancer's reference to the shared part of a model: not a submodule, never copied with the balancer alone."""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from excessmtl import torch_private
from excessmtl.graph.parts import called_modules, parameters_in, parts_in
from excessmtl.graph.representation import (
    FindRepresentation,
    note_outputs,
    note_outputs_unless_compiled,
    noted_by,
)

Part = tuple[nn.Module, nn.Module | None] | Tensor
"""A module with what `torch.compile` made of it, where that was given; or a single parameter."""


class Shared:
    """The shared modules or parameters, and the layer GradNorm looks at.

    A deep copy refers to the copied model when model and balancer are copied together, in either order, and to
    the same model when the balancer is copied alone.
    """

    def __init__(self, shared: nn.Module | Iterable[nn.Module | Tensor], layer: Any = None) -> None:
        given = parts_in(shared, "shared")
        parameters = parameters_in(given)
        self._parts: list[Part] = [_part(part) for part in given]
        self._layer: Any = layer if layer is None or isinstance(layer, nn.Module | Tensor) else list(layer)
        self._copies: dict[int, Any] | None = None
        self._watch()
        if layer is not None:
            mine = {id(parameter) for parameter in parameters}
            if any(id(parameter) not in mine for parameter in parameters_in(self._layer, "layer")):
                raise ValueError("layer has parameters that are not in shared; pass a part of the shared module")

    def _watch(self) -> None:
        """Note the outputs of the modules from now on, for as long as this object lives."""
        self.watched_since = torch_private.time_in_graph()
        self._loose = [part for part in self._parts if isinstance(part, Tensor)]
        modules = [part for part in self._parts if not isinstance(part, Tensor)]
        originals = [original for original, _ in modules]
        self._module = originals[0] if len(originals) == 1 else nn.ModuleList(originals) if originals else None
        self._called: list[nn.Module] = []
        for original, compiled in modules:
            for module in called_modules(original):
                its_compiled = compiled if module is original else None
                called = module if its_compiled is None else its_compiled
                watch = _watches.get(called)
                if watch is None or not watch.handles:
                    watch = _watches[called] = _Watch(module, its_compiled)
                watch.users += 1
                weakref.finalize(self, watch.release)
                self._called.append(module)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shared":
        copied = object.__new__(Shared)
        self._resolve()
        # What the enclosing copy also copies is only known when it is done, so it is looked up at first use.
        copied.__dict__.update(self.__dict__)
        copied._copies = memo
        return copied

    def __getstate__(self) -> dict[str, Any]:
        self._resolve()
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._copies = {}

    def _resolve(self) -> None:
        if self._copies is None:
            return
        copies, self._copies = self._copies, None

        def copy_of(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(copy_of(item) for item in value)
            return copies.get(id(value), value)

        self._parts, self._layer = copy_of(self._parts), copy_of(self._layer)
        self._watch()

    @property
    def module(self) -> nn.Module | None:
        """The shared module, or one that holds all of them; None where parameters were given."""
        self._resolve()
        return self._module

    @property
    def called(self) -> list[nn.Module]:
        """The modules whose outputs are the representation."""
        self._resolve()
        return self._called

    @property
    def name(self) -> str:
        """What was passed, in words."""
        modules = [type(part[0]).__name__ for part in self._parts if not isinstance(part, Tensor)]
        names = list(dict.fromkeys(modules))
        return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") if names else "a list of parameters"

    @property
    def training(self) -> bool:
        """Whether a shared module is in training mode."""
        return any(module.training for module in self.called)

    @property
    def parameters(self) -> list[Tensor]:
        """All shared parameters, frozen ones included: those given as such, then those of the modules."""
        owned: list[Tensor] = [] if self.module is None else list(self.module.parameters())
        if not self._loose:
            return owned
        ids = set(map(id, owned))
        return [*(parameter for parameter in self._loose if id(parameter) not in ids), *owned]

    @property
    def shapes(self) -> list[torch.Size]:
        """Those of all shared parameters."""
        return [parameter.shape for parameter in self.parameters]

    @property
    def device(self) -> torch.device:
        """Where the first parameter is."""
        module = self.module
        first: Tensor = self._loose[0] if self._loose or module is None else next(iter(module.parameters()))
        return first.device

    @property
    def trainable(self) -> list[Tensor]:
        """The shared parameters that require a gradient."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    @property
    def layer(self) -> Sequence[Tensor]:
        """The parameters GradNorm looks at: the last shared weight matrix unless the user chose."""
        self._resolve()
        if self._layer is not None:
            chosen = [parameter for parameter in parameters_in(self._layer, "layer") if parameter.requires_grad]
            if not chosen:
                raise ValueError("layer has no parameter that wants a gradient; choose a layer that is trained")
            return chosen
        trainable = self.trainable
        matrices = [parameter for parameter in trainable if parameter.ndim >= 2]
        return (matrices or trainable)[-1:]

    @property
    def find_representation(self) -> FindRepresentation | None:
        """Finds in a graph the outputs of the modules and marked tensors; None where there are neither."""
        return noted_by(self.called)


def _part(given: nn.Module | Tensor) -> Part:
    if isinstance(given, Tensor):
        return given
    original = torch_private.original_of(given)
    return original, None if given is original else given


class _Watch:
    """The hooks that note a module's outputs; they go with the last balancer that needs them.

    The hook of a module also sees the outputs of its compiled form, for which compiled code is interrupted if need be.
    Where the compiled form is known, a hook on that does it without, also under `fullgraph=True`.
    """

    def __init__(self, module: nn.Module, compiled: nn.Module | None) -> None:
        hooks = {module: note_outputs}
        if compiled is not None:
            hooks = {module: note_outputs_unless_compiled, compiled: note_outputs}
        self.handles: list[RemovableHandle] = []
        living = [handle for watch in _watches.values() for handle in watch.handles]
        for called, note in hooks.items():
            mine = called.register_forward_hook(note)
            self.handles.append(mine)
            registered: Any = mine.hooks_dict_ref()
            known = {handle.id for handle in (mine, *living) if handle.hooks_dict_ref() is registered}
            for key, hook in list(registered.items()):
                if hook is note and key not in known:  # a copy of the module has a copy, which nobody removes
                    del registered[key]
        self.users = 0

    def release(self) -> None:
        """One balancer less."""
        self.users -= 1
        if not self.users:
            for handle in self.handles:
                handle.remove()
            self.handles = []


_watches: "weakref.WeakKeyDictionary[nn.Module, _Watch]" = weakref.WeakKeyDictionary()
