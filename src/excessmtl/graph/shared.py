"""A balancer's reference to the shared part of a model: not a submodule, never copied with the balancer alone.

And what a user passes as `shared`, `layer` or `z`: modules, parameters and names, checked.
"""

import weakref
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from excessmtl import torch_private
from excessmtl.graph.representation import note_outputs, note_outputs_unless_compiled

Part = tuple[nn.Module, nn.Module | None] | Tensor
"""A module with what `torch.compile` made of it, where that was given; or a single parameter."""


class Shared:
    """The shared modules or parameters, and the layer GradNorm looks at.

    A deep copy refers to the copied model when model and balancer are copied together, in either order, and to the
    same model when the balancer is copied alone. Which of the two is only known when the copying is over: `resolve`
    finds out, before anything else is asked.
    """

    modules: list[nn.Module]
    """The shared modules; none where parameters were given."""
    module: nn.Module
    """The shared module, or one that holds all of them."""
    loose: list[Tensor]
    """Parameters that were given as such."""
    called: list[nn.Module]
    """The modules whose outputs are the representation."""

    def __init__(self, shared: nn.Module | Iterable[nn.Module | Tensor], layer: Any = None) -> None:
        given = parts_in(shared, "shared")
        parameters = parameters_in(given)
        self._parts: list[Part] = [_part(part) for part in given]
        self._layer: Any = layer if layer is None or isinstance(layer, nn.Module | Tensor) else list(layer)
        self.copies: dict[int, Any] | None = None  # where it is a copy: what has been copied with it, by id
        self._watch()
        if layer is not None:
            mine = {id(parameter) for parameter in parameters}
            if any(id(parameter) not in mine for parameter in parameters_in(self._layer, "layer")):
                raise ValueError("layer has parameters that are not in shared; pass a part of the shared module")

    def _watch(self) -> None:
        """Note the outputs of the modules from now on, for as long as this object lives."""
        self.watched_since = torch_private.time_in_graph()
        modules = [part for part in self._parts if not isinstance(part, Tensor)]
        self.modules = [original for original, _ in modules]
        self.module = self.modules[0] if len(self.modules) == 1 else nn.ModuleList(self.modules)
        owned = set(map(id, self.module.parameters()))
        self.loose = [part for part in self._parts if isinstance(part, Tensor) and id(part) not in owned]
        self.called = []
        for original, compiled in modules:
            for module in called_modules(original):
                its_compiled = compiled if module is original else None
                called = module if its_compiled is None else its_compiled
                watch = _watches.get(called)
                if watch is None or not watch.handles:
                    watch = _watches[called] = _Watch(module, its_compiled)
                watch.users += 1
                weakref.finalize(self, watch.release)
                self.called.append(module)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shared":
        copied = object.__new__(Shared)
        self.resolve()
        # What the enclosing copy also copies is only known when it is done, so it is looked up at first use.
        copied.__dict__.update(self.__dict__)
        copied.copies = memo
        return copied

    def __getstate__(self) -> dict[str, Any]:
        self.resolve()
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.copies = {}

    def resolve(self) -> None:
        """Refer to the copies of what has been copied together with this object."""
        if self.copies is None:
            return
        copies, self.copies = self.copies, None

        def copy_of(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(copy_of(item) for item in value)
            return copies.get(id(value), value)

        self._parts, self._layer = copy_of(self._parts), copy_of(self._layer)
        self._watch()

    @property
    def name(self) -> str:
        """What was passed, in words."""
        modules = [type(part[0]).__name__ for part in self._parts if not isinstance(part, Tensor)]
        names = list(dict.fromkeys(modules))
        return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") if names else "a list of parameters"

    @property
    def training(self) -> bool:
        """Whether a shared module is in training mode."""
        self.resolve()
        return any(module.training for module in self.called)

    @property
    def parameters(self) -> list[Tensor]:
        """All shared parameters, frozen ones included: those given as such, then those of the modules."""
        self.resolve()
        return [*self.loose, *self.module.parameters()]

    @property
    def shapes(self) -> list[torch.Size]:
        """Those of all shared parameters."""
        return [parameter.shape for parameter in self.parameters]

    @property
    def device(self) -> torch.device:
        """Where the first parameter is."""
        self.resolve()
        return next(chain(self.loose, self.module.parameters())).device

    @property
    def trainable(self) -> list[Tensor]:
        """The shared parameters that require a gradient."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    @property
    def layer(self) -> Sequence[Tensor]:
        """The parameters GradNorm looks at: the last shared weight matrix unless the user chose."""
        self.resolve()
        if self._layer is not None:
            chosen = [parameter for parameter in parameters_in(self._layer, "layer") if parameter.requires_grad]
            if not chosen:
                raise ValueError("layer has no parameter that wants a gradient; choose a layer that is trained")
            return chosen
        trainable = self.trainable
        matrices = [parameter for parameter in trainable if parameter.ndim >= 2]
        return (matrices or trainable)[-1:]


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


def parameters_in(shared: Any, argument: str = "shared") -> list[Tensor]:
    """The parameters in a module, a tensor, or an iterable of both; a ValueError where there are none."""
    lists = [list(part.parameters()) if isinstance(part, nn.Module) else [part] for part in parts_in(shared, argument)]
    parameters = list({id(part): part for own in lists for part in own}.values())  # once each, as in a module
    for parameter in parameters:
        if not isinstance(parameter, Tensor) or not parameter.is_leaf:
            kind = f"a {type(parameter).__name__}" if not isinstance(parameter, Tensor) else "a tensor with a history"
            raise ValueError(
                f"{argument} must hold modules or leaf tensors, found {kind}; pass e.g. model.encoder, a list of "
                "modules, or model.encoder.parameters()"
            )
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(
                f"{argument} has a parameter without a shape yet; run one forward before making the balancer"
            )
    if not parameters:
        raise ValueError(f"{argument} has no parameters; pass the module or parameters that all tasks share")
    return parameters


def parts_in(shared: Any, argument: str) -> list[Any]:
    """What was passed, part by part."""
    if isinstance(shared, nn.Module | Tensor):
        return [shared]
    if isinstance(shared, Iterable):
        return list({id(part): part for part in list(shared)}.values())  # once each
    raise ValueError(
        f"{argument} must be a module or parameters, found {type(shared).__name__}; pass e.g. model.encoder"
    )


def submodule(shared: Any, name: Any) -> nn.Module:
    """The submodule of `shared` with a dotted name, as given by `z=`."""
    if not isinstance(shared, nn.Module) or not isinstance(name, str) or not name:
        given = type(shared).__name__ if not isinstance(shared, nn.Module) else repr(name)
        raise ValueError(
            f"z must be the name of a submodule of the module passed as shared, found {given}; "
            "pass e.g. shared=model, z='encoder'"
        )
    try:
        return shared.get_submodule(name)
    except AttributeError:
        children = [child for child, _ in shared.named_children()]
        raise ValueError(
            f"z names {name!r}, which is no submodule of shared ({type(shared).__name__}); its parts are {children}"
        ) from None


def called_modules(module: nn.Module) -> list[nn.Module]:
    """The module itself, or the modules in it that can be called where it is a container without a forward.

    Nobody calls an `nn.ModuleList` or an `nn.ModuleDict`: the outputs of what they hold stand for theirs.
    """
    if getattr(type(module), "forward", None) is not nn.Module.forward:
        return [module]
    return [module for child in module.children() for module in called_modules(child)]
