"""A balancer's state: complete from the start, fp32 whatever the model, strict and versioned when loaded.

It changes in one place, `write`, and always in place: a buffer stays the same tensor from step to step, so that a CUDA
graph, or DistributedDataParallel, can rely on where it is. What is not in buffers is saved as a tensor of bytes:
checkpoint formats such as safetensors hold tensors and nothing else.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import chain
from typing import Any, Self

import torch
from torch import Tensor, nn

from excessmtl.graph.shared import Shared
from excessmtl.methods.base import Rule, State
from excessmtl.torch_private import buffers_of, copy_all

_VERSION = 3
_PREFIX = "state_"
_EXTRA: dict[str, type] = {
    "version": int,
    "method": str,
    "tasks": list,
    "options": dict,
    "steps": int,
    "random": Tensor,
}
MOST_STEPS = 2**63 - 1


def state_options(rule: Rule, shared: Shared, others: Mapping[str, Any]) -> dict[str, str]:
    """What a state depends on, as text: the options of the rule, and others of the balancer."""
    options: dict[str, Any] = {"estimator": rule.estimator, "probe": rule.probe.value}
    options |= {option.name: getattr(rule, option.name) for option in fields(rule) if option.name != "probe"}
    if rule.probe.at_layer:
        layer = {id(parameter) for parameter in shared.layer}
        options["layer"] = [i for i, parameter in enumerate(shared.parameters) if id(parameter) in layer]
    return {name: repr(value) for name, value in {**options, **others}.items()}


class RandomStream:
    """Draws of one step from a copy of the balancer's random stream, so that a step that fails has drawn nothing."""

    def __init__(self, committed: torch.Generator) -> None:
        self._committed = committed
        self.used: torch.Generator | None = None
        """The stream after the step; None where nothing was drawn."""

    def __call__(self) -> torch.Generator:
        """The generator to draw from."""
        if self.used is None:
            self.used = torch.Generator()
            self.used.set_state(self._committed.get_state())
        return self.used


class Memory(nn.Module):
    """A rule's state in buffers, with the step counter and the random stream.

    `options`: what the state depends on, as text; a state saved with other options is refused.
    """

    weights: Tensor
    """[m] the weights last decided, as published. The next step overwrites them: clone what you keep."""
    skipped: Tensor
    """[m] in how many (micro-)batches each task was left out because something about it was not finite."""
    in_a_row: Tensor
    """[m] how many of these came last, without one in between in which the task took part."""

    def __init__(
        self, rule: Rule, tasks: tuple[str, ...], shapes: list[torch.Size], options: Mapping[str, str]
    ) -> None:
        super().__init__()
        self.steps = 0
        self.generator = torch.Generator().manual_seed(getattr(rule, "seed", 0))
        self._method, self._tasks, self.options = rule.name, tasks, dict(options)
        self._added = {name: repr(value) for name, value in rule.added.items()}
        # Tensors made in inference mode cannot be changed in place outside it.
        with torch.inference_mode(False), _default_fp32():
            state = rule.init(len(tasks), shapes)
            self._names = tuple(state)
            for name, tensor in state.items():
                self.register_buffer(_PREFIX + name, tensor)
            self.register_buffer("weights", rule.prior(len(tasks)))
            self.register_buffer("skipped", torch.zeros(len(tasks), dtype=torch.int64))
            self.register_buffer("in_a_row", torch.zeros(len(tasks)))  # fp32: copied in one kernel with the weights

    @property
    def state(self) -> State:
        """The rule's state, by name."""
        mine = buffers_of(self)
        return {name: mine[_PREFIX + name] for name in self._names}

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where the state is in memory."""
        return tuple([buffer.data_ptr() for buffer in buffers_of(self).values()])

    def write(
        self,
        state: State | None = None,
        weights: Tensor | None = None,
        left_out: Tensor | None = None,
        in_a_row: Tensor | None = None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        """Change what is on the device: all of the state changes here, and nowhere else.

        `finish`: changes state that is too large to exist twice.
        """
        mine = buffers_of(self)
        targets: list[Any] = []
        sources: list[Tensor] = []
        for name, new in (("weights", weights), ("in_a_row", in_a_row)):
            if new is not None:
                targets.append(mine[name])
                sources.append(new)
        if state:
            addresses = {mine[_PREFIX + name].data_ptr() for name in self._names}
            for name, new in state.items():
                if new is not mine[_PREFIX + name]:
                    # A rule may hand on a tensor from one name to another: copy it before that is overwritten.
                    targets.append(mine[_PREFIX + name])
                    sources.append(new.clone() if new.data_ptr() in addresses else new)
        with torch.no_grad():
            if finish is not None:
                finish()
            if left_out is not None:
                self.skipped.add_(left_out)
            if targets:
                copy_all(targets, sources)

    def get_extra_state(self) -> Tensor:
        """What is not a buffer, as a tensor of bytes on the CPU."""
        plain = {
            "version": _VERSION,
            "method": self._method,
            "tasks": list(self._tasks),
            "options": dict(self.options),
        }
        return encoded(plain, self.steps, self.generator.get_state())

    def set_extra_state(self, state: Tensor) -> None:
        """Take what is not a buffer from a state; a ValueError where it is not one for this balancer."""
        saved = self._checked(state)
        self.steps = saved["steps"]
        self.generator.set_state(saved["random"])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in buffers_of(self):  # the buffers change in place; what was saved must not
            destination[prefix + name] = destination[prefix + name].clone()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        for name, buffer in list(buffers_of(self).items()):
            # `load_state_dict(assign=True)` makes the caller's tensors the buffers, which the next step overwrites.
            if buffer is state_dict.get(prefix + name):
                setattr(self, name, buffer.clone())

    def check(self, saved: dict[str, Any]) -> None:
        """A ValueError if this is not a state for this balancer; nothing has been changed then."""
        self._checked(saved.pop("_extra_state", None))
        self._check_buffers(saved)

    def same_tasks(self, state: Any) -> bool:
        """Whether what is not a buffer, as bytes, is of the same tasks in the same order."""
        return bool(decoded(state).get("tasks") == list(self._tasks))

    def check_matching(
        self, saved: dict[str, Any], shapes: Callable[[int], Mapping[str, torch.Size]], per_task: Iterable[str]
    ) -> dict[str, Any]:
        """As `check`, for a state of other tasks; what is not a buffer.

        `shapes`: from the number of tasks to the shapes of the buffers. `per_task`: options that depend on the tasks.
        """
        extra = self._checked(saved.pop("_extra_state", None), any_tasks=True, apart=per_task)
        self._check_buffers(saved, shapes(len(extra["tasks"])))
        return extra

    def _checked(self, state: Any, any_tasks: bool = False, apart: Iterable[str] = ()) -> dict[str, Any]:
        """What is not a buffer, from its bytes. `apart`: options that may differ."""
        extra = decoded(state)
        if extra["version"] != _VERSION:
            raise ValueError(
                f"state has version {extra['version']!r}, this release reads {_VERSION}; use the release that wrote it"
            )
        for key, kind in _EXTRA.items():
            if not isinstance(extra.get(key), kind) or isinstance(extra[key], bool):  # True counts as an int
                raise ValueError(f"state has {key}={extra.get(key)!r} where {kind.__name__} is expected; it is damaged")
        for key, mine in (("method", self._method), ("tasks", list(self._tasks))):
            if extra[key] != mine and not (any_tasks and key == "tasks"):
                raise ValueError(f"state is for {key} {extra[key]!r}, this balancer has {mine!r}; make one like it")
        self._check_options(extra["options"], apart)
        self._check_random(extra["random"])
        if not 0 <= extra["steps"] <= MOST_STEPS:
            raise ValueError(f"state has steps={extra['steps']}, expected 0 to {MOST_STEPS}; it is damaged")
        return extra

    def _check_options(self, options: Mapping[str, Any], apart: Iterable[str]) -> None:
        for name in dict.fromkeys([*self.options, *options]):
            saved, mine = options.get(name, self._added.get(name, "nothing")), self.options.get(name, "nothing")
            if saved != mine and name not in apart:
                raise ValueError(
                    f"state was saved with {name}={saved}, this balancer has {name}={mine}, so it has another shape or "
                    "another meaning; make the balancer with the options it was saved with"
                )

    def _check_random(self, random: Tensor) -> None:
        try:
            torch.Generator().set_state(random)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                "state has a random stream of another kind; it is damaged, or from another version of torch"
            ) from error

    def _check_buffers(self, saved: Mapping[str, Any], shapes: Mapping[str, torch.Size] | None = None) -> None:
        expected = dict(self.named_buffers())
        if set(saved) != set(expected):
            missing, unexpected = sorted(set(expected) - set(saved)), sorted(set(saved) - set(expected))
            raise ValueError(
                f"state does not fit the options of this balancer: missing {missing}, unexpected {unexpected}; make "
                "the balancer with the options it was saved with"
            )
        for name, buffer in expected.items():
            if not isinstance(saved[name], Tensor) or saved[name].is_meta or saved[name].layout is not torch.strided:
                kind = "tensor without values" if isinstance(saved[name], Tensor) else type(saved[name]).__name__
                raise ValueError(f"state has {name} of type {kind}, expected a tensor; it is damaged")
            if saved[name].dtype != buffer.dtype:
                raise ValueError(
                    f"state has {name} of type {saved[name].dtype}, expected {buffer.dtype}; make the balancer with "
                    "the options it was saved with"
                )
            shape = buffer.shape if shapes is None else shapes[name]
            if saved[name].shape != shape:
                raise ValueError(
                    f"state has {name} of shape {tuple(saved[name].shape)}, expected {tuple(shape)}; the shared "
                    "parameters or options differ from those it was saved with"
                )
            if saved[name].is_floating_point() and saved[name].isnan().any():  # infinite sums of squares may be genuine
                raise ValueError(f"state has NaN in {name}, which no training leaves there; it is damaged")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.half()` or `.to(dtype)` on a model that owns the balancer must move its state, not round it.
        with torch.inference_mode(False):
            super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self


@contextmanager
def _default_fp32() -> Iterator[None]:
    """Inside, rules make their state in fp32, also where the user has set another default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def encoded(plain: Mapping[str, Any], steps: int, random: Tensor) -> Tensor:
    """[n] uint8: JSON. `plain` is what never changes, `random` the state of a random stream.

    The length does not depend on `steps`: some checkpoint formats load into the tensors of a fresh state.
    """
    stream = base64.b64encode(bytes(random.tolist())).decode()
    text, longest = (json.dumps({**plain, "steps": number, "random": stream}) for number in (steps, MOST_STEPS))
    return torch.frombuffer(bytearray(text.ljust(len(longest)).encode()), dtype=torch.uint8)


def decoded(state: Any) -> dict[str, Any]:
    """What was encoded, the random stream as a tensor; a ValueError for anything else."""
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.is_meta:
        raise ValueError("state has no '_extra_state' entry of a balancer; pass what state_dict() returned")
    try:
        content = json.loads(bytes(state.tolist()))
        if "random" in content:
            content["random"] = torch.frombuffer(bytearray(base64.b64decode(content["random"])), dtype=torch.uint8)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError("state has an '_extra_state' entry that cannot be read; it is damaged") from error
    if not isinstance(content, dict) or "version" not in content:
        raise ValueError("state has an '_extra_state' entry of something else; pass what state_dict() returned")
    return content


def check_keys(module: nn.Module, state_dict: Mapping[str, Any], prefix: str = "") -> None:
    """A ValueError for keys that are not the module's; `nn.Module` reports them when everything has been written."""
    children = tuple(f"{prefix}{name}." for name, _ in module.named_children())
    listed = [named("", False, False) for named in (module.named_parameters, module.named_buffers)]
    own = {prefix + name for name, _ in chain(*listed)} | {prefix + "_extra_state"}
    mine = [key for key in state_dict if key.startswith(prefix)]
    unexpected = [key for key in mine if key not in own and not key.startswith(children)]
    if unexpected:
        raise ValueError(f"state has unexpected keys {unexpected[:5]}; pass what state_dict() returned")
