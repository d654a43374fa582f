"""Making a balancer by the name of its method."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from excessmtl.balancer import Balancer
from excessmtl.engine.reference import Engine
from excessmtl.engines import EngineName
from excessmtl.methods import registry
from excessmtl.methods.base import Heads, build
from excessmtl.methods.excess import excess
from excessmtl.multipliers import Scale

_BALANCER_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(Balancer.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)


class ExcessMTL(Balancer):
    """ExcessMTL, a robust form by default (`estimator="robust"`) or Algorithm 1 of the paper (`"paper"`).

    `probe` says where the estimator looks: `"representation"` (all that the robust one does) or, for the paper's,
    `"all"` shared parameters. Further options are those of the estimator: `excessmtl.methods.robust` and
    `excessmtl.methods.excess_mtl`.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        shared: nn.Module | Iterable[Tensor],
        estimator: Literal["robust", "paper"] = "robust",
        *,
        probe: Literal["all", "representation"] | None = None,
        heads: Heads | None = None,
        every: int = 1,
        scale: Scale = "sum",
        protect: Mapping[str, float] | None = None,
        pool: bool = True,
        engine: EngineName | Engine = "fast",
        tasks_at_once: int | None = None,
        streaming: bool | None = None,
        record: bool = True,
        **options: Any,
    ) -> None:
        rule = excess(estimator, probe, **options)
        super().__init__(
            rule,
            tasks,
            shared,
            heads=heads,
            every=every,
            scale=scale,
            protect=protect,
            pool=pool,
            engine=engine,
            tasks_at_once=tasks_at_once,
            streaming=streaming,
            record=record,
        )


def list_methods() -> list[str]:
    """The names `create` knows."""
    return list(registry())


def create(name: str, tasks: Sequence[str], shared: nn.Module | Iterable[Tensor], **options: Any) -> Balancer:
    """The balancer of method `name`. Options are the method's own and those of `Balancer`."""
    methods = registry()
    if name not in methods:
        raise ValueError(f"unknown method {name!r}; the methods are {list(methods)}")
    if name == "excess":
        return ExcessMTL(tasks, shared, **options)
    common = {option: options.pop(option) for option in _BALANCER_OPTIONS if option in options}
    return Balancer(build(methods[name], options, f"method {name!r}"), tasks, shared, **common)
