"""What a weighting method is: a pure rule from what a step shows to the tasks' weights.

A rule is a frozen dataclass whose fields are its options. It keeps no state of its own: `init` makes the
state, `update` takes it and returns a new one. That is what lets the engine leave a bad task's state alone,
resume bit for bit, and test a rule with four numbers on paper.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from excessmtl.graph.places import CHOICES, Probe
from excessmtl.methods.observation import Observation
from excessmtl.tensors import cached_constant

State = dict[str, Tensor]
Heads = Literal["weighted", "unweighted"]


@dataclass(frozen=True)
class Decision:
    """What a rule decides in one step."""

    weights: Tensor
    """[m] multipliers of the task gradients on the shared parameters."""
    state: State
    excess_risks: Tensor | None = None
    """[m], for the methods that estimate them."""
    gates: tuple[tuple[Tensor, ...], ...] | None = None
    """Instead of one multiplier per task: for each task, one tensor per sample, broadcastable to its dz."""
    direction: Tensor | None = None
    """Instead of the weighted sum: [n] what the shared parameters get, side by side (rules with `directs`), or, of the
    shape of z, what enters at a representation of one tensor (rules with `gated`)."""
    finish: Callable[[], None] | None = None
    """Updates state that is too large to exist twice in place; called when the step can no longer fail."""


@dataclass(frozen=True)
class Rule:
    """Base of all methods. Override `update`, and the rest where the method differs from it."""

    name: ClassVar[str]
    estimator: ClassVar[str | None] = None
    """Where several rules share a name: which of them this is."""
    heads: ClassVar[Heads] = "weighted"
    """What task-specific parameters receive unless the user says otherwise (METHODS: per paper)."""
    simplex: ClassVar[bool] = True
    """Whether the weights are non-negative and sum to one."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """Further inputs that the method reads: "metrics", "validation_losses", "after_step", or any argument of `backward`
    by a name of its own, as "targets", which `update` finds in `seen.extras`."""
    validates_heads: ClassVar[bool] = True
    """Whether products with validation gradients count the tasks' own parameters (the gradient of a validation loss by
    the weights does), or the shared ones alone, as the Gram matrix does."""
    added: ClassVar[Mapping[str, Any]] = {}
    """Options that states saved by earlier releases do not name, and the value that describes these states."""
    per_sample: ClassVar[bool] = False
    """At the representation: whether the rule reads `samples` (True) or `rows` (False)."""
    uses_host: ClassVar[bool] = False
    """Whether `update` reads a device value, draws random numbers, or does other operations from step to step. All
    others do the same operations on the device in every step, which may be recorded as a CUDA graph."""
    whole_model: ClassVar[bool] = False
    """Whether `shared` is meant to be the whole model, heads included."""
    logits: ClassVar[frozenset[str]] = frozenset()
    """State that means something only beside that of other tasks, as an exponent of the weights: a task that is added
    starts with the mean weight there."""
    places: ClassVar[frozenset[str]] = frozenset()
    """Options that `bind` turns into the place of a task; when tasks come and go, the task stays the same."""
    chained: ClassVar[bool] = False
    """Whether each task is compared with the next one, so that the order of tasks counts, though not its direction."""
    gated: ClassVar[bool] = False
    """Whether the rule decides by `gates`, or by a `direction` at z, which fit one batch only: it is asked for every
    micro-batch, and the next batch does not use its decision."""
    directs: ClassVar[bool] = False
    """Whether the rule decides by `direction`; it then looks at all shared parameters, in every step."""

    @property
    def probe(self) -> Probe:
        """Where the engine looks. A rule with one answer overrides it by a ClassVar; see also `Probed`."""
        return Probe.LOSSES

    def bind(self, tasks: Sequence[str]) -> Self:
        """The rule with per-task options (mappings from task names) resolved to task order."""
        return self

    def total(self, tasks: int) -> float | None:
        """What the weights of all tasks sum to as published; None where that is part of what the method decides."""
        return 1.0 if self.simplex else None

    def init(self, tasks: int, shared: Sequence[torch.Size]) -> State:
        """The complete state before the first step (all fp32 or integer tensors, on the CPU).

        Where every tensor has a row per task, or does not depend on their number, tasks can be added and removed.
        """
        return {}

    def prior(self, tasks: int) -> Tensor:
        """[m] the weights before the first decision."""
        return torch.full((tasks,), 1 / tasks)

    def update(self, state: State, seen: Observation) -> Decision:
        """Weights for this step and the state after it. Must not modify its arguments."""
        raise NotImplementedError

    def lookahead(self, state: State) -> Tensor:
        """[m] multipliers of the trial step after which validation losses are taken (rules that use them)."""
        raise NotImplementedError

    def after_step(self, state: State, losses: Tensor, ok: Tensor) -> State:
        """The state after the training loop has given the losses of the same batch after the step."""
        raise NotImplementedError

    def progress(self, state: State) -> "Progress | None":
        """How far the tasks have come, for `Balancer.diagnose`; None: the rule keeps no losses."""
        return None

    def end_epoch(self, state: State) -> State:
        """The state after the training loop has said that an epoch is over."""
        return state


class Progress(NamedTuple):
    """How far the tasks have come; tensors [m]."""

    steps: Tensor
    """In which a task had labels."""
    first: Tensor
    """Loss of the first steps."""
    loss: Tensor
    """Running loss."""
    excess: Tensor
    """The part of it that training can still remove; NaN where that is not known."""


@dataclass(frozen=True)
class Probed(Rule):
    """A rule that works on any per-task gradients, so that its user chooses: `probe="all"|"representation"`."""

    probe: Probe = field(default=Probe.SHARED, kw_only=True)
    """Where gradients are looked at: at "all" shared parameters, or at the "representation", which is cheaper."""

    def __post_init__(self) -> None:
        chosen = getattr(self.probe, "value", self.probe)
        if chosen not in CHOICES:
            raise ValueError(f'probe must be "all" or "representation", found {chosen!r}')
        object.__setattr__(self, "probe", CHOICES[chosen])


def _kind_of(default: int | float) -> str:
    return "True or False" if isinstance(default, bool) else "a number"


def build(factory: "Factory", options: Mapping[str, Any], what: str) -> Rule:
    """The rule with these options; an option it does not have, or text in place of a number, is refused by name."""
    if isinstance(factory, type):
        for option in fields(factory):
            given = options.get(option.name)
            if isinstance(option.default, int | float) and isinstance(given, str):
                raise ValueError(f"{option.name} must be {_kind_of(option.default)}, found {given!r}")
        known = [option.name for option in fields(factory) if option.init]
        unknown = [name for name in options if name not in known]
        if unknown:
            has = f"its options are {known}" if known else "it has none"
            raise ValueError(f"{unknown[0]} is not an option of {what}; {has}, beside those of every Balancer")
    try:
        return factory(**options)
    except TypeError as error:  # a comparison with something that is not a number
        raise ValueError(f"options {dict(options)} do not fit {what}: {error}") from error


Factory = Callable[..., Rule]
R = TypeVar("R", bound=Factory)
_REGISTRY: dict[str, Factory] = {}


def method(name: str) -> Callable[[R], R]:
    """Class decorator: make the rule known to `excessmtl.create(name, ...)`."""

    def register(factory: R) -> R:
        if name in _REGISTRY:
            raise ValueError(f"method name {name!r} is taken by {_REGISTRY[name]!r}; choose another")
        if isinstance(factory, type):
            factory.name = name  # type: ignore[attr-defined]
        _REGISTRY[name] = factory
        return factory

    return register


def registry() -> Mapping[str, Factory]:
    """The registered methods by name: the default, then the others in order of registration."""
    return dict(sorted(_REGISTRY.items(), key=lambda item: item[0] != "excess"))


def per_task(option: str, value: object, tasks: Sequence[str], default: float) -> tuple[float, ...]:
    """A per-task option as numbers in task order: from one number, a sequence, or a mapping by task name."""
    if value is None:
        return (default,) * len(tasks)
    if isinstance(value, int | float):
        return (float(value),) * len(tasks)
    if isinstance(value, Mapping):
        unknown, missing = set(value) - set(tasks), set(tasks) - set(value)
        if unknown or missing:
            raise ValueError(
                f"{option} must name each task once; unknown: {sorted(unknown)}, missing: {sorted(missing)}"
            )
        return tuple(float(value[task]) for task in tasks)
    numbers = tuple(float(number) for number in value)  # type: ignore[attr-defined]
    if len(numbers) != len(tasks):
        raise ValueError(f"{option} has {len(numbers)} values for {len(tasks)} tasks; give one per task")
    return numbers


def constant(values: Sequence[float], like: Tensor) -> Tensor:
    """Numbers from the host beside `like`, copied once."""
    return _copied(tuple(values), like.device)


@cached_constant
def _copied(values: tuple[float, ...], device: torch.device) -> Tensor:
    # A blocking copy would make the host wait for the device; a copy in every step could not be recorded.
    return torch.as_tensor(values, dtype=torch.float32, device="cpu").to(device, non_blocking=True)
