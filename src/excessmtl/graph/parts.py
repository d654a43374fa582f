"""What a user passes as `shared`, `layer` or `z`: modules, parameters and names, checked."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn


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
