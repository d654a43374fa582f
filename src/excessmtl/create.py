"""Making a balancer by the name of its method."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from excessmtl.balancer import Balancer
from excessmtl.engine import EngineName
from excessmtl.excess.method import excess
from excessmtl.gradients.any_graph import AnyGraph
from excessmtl.losses.classification import RobustBCEWithLogits, RobustCrossEntropy
from excessmtl.losses.regression import RobustMSELoss
from excessmtl.methods import registry
from excessmtl.methods.base import Heads, build
from excessmtl.methods.likelihoods import OWN
from excessmtl.methods.names import checked_name
from excessmtl.step.multipliers import Scale

BALANCER_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(Balancer.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)


class ExcessMTL(Balancer):
    """ExcessMTL, a robust form by default (`estimator="robust"`) or Algorithm 1 of the paper (`"paper"`).

    `probe` says where the estimator looks: `"representation"` (all that the robust one does) or, for the paper's,
    `"all"` shared parameters. Further options are those of the estimator: `excessmtl.excess.robust` and
    `excessmtl.excess.paper`.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        shared: nn.Module | Iterable[nn.Module | Tensor],
        estimator: Literal["robust", "paper"] = "robust",
        *,
        probe: Literal["all", "representation"] | None = None,
        heads: Heads | None = None,
        every: int = 1,
        scale: Scale = "sum",
        protect: Mapping[str, float] | None = None,
        z: str | None = None,
        pool: bool = True,
        engine: EngineName | AnyGraph = "fast",
        tasks_at_once: int | None = None,
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
            z=z,
            protect=protect,
            pool=pool,
            engine=engine,
            tasks_at_once=tasks_at_once,
            record=record,
        )


def with_likelihoods(name: str, options: Mapping[str, Any], losses: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `create` for tasks with these losses: the default method is told which are likelihoods."""
    default = checked_name(name, registry()) == "excess" and options.get("estimator", "robust") == "robust"
    return {"likelihoods": likelihoods(losses), **options} if default else dict(options)


def likelihoods(losses: Mapping[str, Any]) -> dict[str, bool | str]:
    """The tasks whose loss is, or contains, a robust one: True for classes, OWN for numbers. A loss is any function."""
    kinds: dict[str, bool | str] = {}
    for task, loss in losses.items():
        for part in loss.modules() if isinstance(loss, nn.Module) else ():
            if isinstance(part, (RobustCrossEntropy, RobustBCEWithLogits)):
                kinds[task] = True
            elif isinstance(part, RobustMSELoss):
                kinds[task] = OWN
    return kinds


def list_methods() -> list[str]:
    """The names `create` knows."""
    return list(registry())


def create(
    name: str, tasks: Sequence[str], shared: nn.Module | Iterable[nn.Module | Tensor], **options: Any
) -> Balancer:
    """A balancer: `balancer.backward(losses)` takes the place of `sum(losses.values()).backward()`.

    Args:
        name: A method, e.g. "excess", "uniform", "mgda"; `list_methods()` has all names. Case, hyphens and underscores
            do not matter, and the names of LibMTL and TorchJD are known.
        tasks: The names of the tasks, in the order of every tensor that a step reports.
        shared: The modules, or the parameters, that all tasks share.
        z: With the whole model as `shared`: the name of the part that all tasks share, e.g. "encoder".
        heads: What a task's own parameters get: the gradient of its "weighted" or of its "unweighted" loss.
        every: Ask the method at every k-th step only; in between the weights stay.
        scale: What the multipliers sum to: the number of tasks ("sum", the default) or 1 ("mean"); or a factor.
        protect: Task -> floor: its share of the weight never falls below.
        layer: For "gradnorm": the layer whose gradient norms it equalises.
        pool: Whether several processes that train together decide together (the default).
        engine: "fast", or "reference": the same numbers from code written to be read.
        tasks_at_once: For methods that look at all shared parameters: how many tasks share a backward pass.
        record: Whether the balancer's own arithmetic is recorded as a CUDA graph on a GPU (the default).
        options: Those of the method, by name; for "excess", `estimator="robust"` or `"paper"` and the estimator's own.

    `help(excessmtl.Balancer)` says more about each argument. A mistake in a name or a value is an error that says so.

    Example:
        >>> balancer = create("excess", tasks=["price", "churn"], shared=model.encoder)
        >>> step = balancer.backward({"price": price_loss, "churn": churn_loss})
        >>> print(step)
    """
    methods = registry()
    name = checked_name(name, methods)
    if name == "excess":
        return ExcessMTL(tasks, shared, **options)
    common = {option: options.pop(option) for option in BALANCER_OPTIONS if option in options}
    return Balancer(build(methods[name], options, f"method {name!r}"), tasks, shared, **common)
