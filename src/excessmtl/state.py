"""A balancer's state: complete from the start, fp32 whatever the model, strict and versioned when loaded."""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from excessmtl.methods.base import Rule, State

_VERSION = 1
_PREFIX = "state_"
_EXTRA: dict[str, type] = {"version": int, "method": str, "tasks": list, "steps": int, "random": Tensor}


class StatefulModule(nn.Module):
    """Keeps a rule's state in buffers, with the step counter and the random stream beside them."""

    weights: Tensor
    """[m] the weights last decided, without `scale`. Later steps may overwrite them: clone what you keep."""
    skipped: Tensor
    """[m] in how many (micro-)batches each task was left out because something about it was not finite."""

    def __init__(self, rule: Rule, tasks: tuple[str, ...], shapes: list[torch.Size]) -> None:
        super().__init__()
        self.rule = rule
        self.tasks = tasks
        self._steps = 0
        self._generator = torch.Generator().manual_seed(getattr(rule, "seed", 0))
        state = rule.init(len(tasks), shapes)
        self._state_names = tuple(state)
        for name, tensor in state.items():
            self.register_buffer(_PREFIX + name, tensor)
        self.register_buffer("weights", rule.prior(len(tasks)))
        self.register_buffer("skipped", torch.zeros(len(tasks), dtype=torch.int64))

    @property
    def state(self) -> State:
        """The rule's state, by name."""
        return {name: getattr(self, _PREFIX + name) for name in self._state_names}

    def remember(self, state: State) -> None:
        """Replace the rule's state."""
        taken = {place.data_ptr() for place in self._buffers.values() if place is not None}
        for name in self._state_names:
            tensor = state[name].detach() if state[name].requires_grad else state[name]
            if tensor is self._buffers[_PREFIX + name]:  # changed in place, or not at all
                continue
            # What a rule hands on from one name to another is copied: loading, settling and rules write into buffers.
            tensor = tensor.clone() if tensor.data_ptr() in taken else tensor
            taken.add(tensor.data_ptr())
            self._buffers[_PREFIX + name] = tensor  # past a module's `__setattr__`, which takes longer than a rule

    def settle(self, places: dict[str, Tensor]) -> None:
        """Copy every buffer into the tensor it once was, and use that again: a recorded CUDA graph knows no other."""
        for name, place in places.items():
            current = self._buffers[name]
            if current is not None and current is not place:
                place.copy_(current)
                self._buffers[name] = place

    def use(self, places: dict[str, Tensor]) -> None:
        """Take these tensors for the buffers of their names."""
        for name, place in places.items():
            setattr(self, name, place)

    def count_replayed(self) -> None:
        """Count a step that was replayed from a recording, where no line of Python ran."""
        self._steps += 1

    def get_extra_state(self) -> dict[str, Any]:
        """What is not a buffer."""
        return {
            "version": _VERSION,
            "method": self.rule.name,
            "tasks": list(self.tasks),
            "steps": self._steps,
            "random": self._generator.get_state(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Checked by `_load_from_state_dict` before anything is changed."""
        self._steps = state["steps"]
        self.discard()
        self._generator.set_state(state["random"].cpu())

    def discard(self) -> None:
        """Forget what has been accumulated towards a step that is not going to be finished."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self._buffers:  # changed in place by some rules, loading and replay; what was saved stays as it was
            destination[prefix + name] = destination[prefix + name].clone()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        found = {key[len(prefix) :]: value for key, value in state_dict.items() if key.startswith(prefix)}
        if found or not prefix:  # else: a model's checkpoint from before it had a balancer, reported as missing keys
            self._check_fits(found)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *rest)

    def _check_fits(self, found: dict[str, Any]) -> None:
        extra = found.pop("_extra_state", None)
        if not isinstance(extra, dict) or "version" not in extra:
            raise ValueError("state has no '_extra_state' entry of a balancer; pass what state_dict() returned")
        for key, kind in _EXTRA.items():
            if not isinstance(extra.get(key), kind):
                raise ValueError(f"state has {key}={extra.get(key)!r} where {kind.__name__} is expected; it is damaged")
        if extra["version"] != _VERSION:
            raise ValueError(
                f"state has version {extra['version']!r}, this release reads {_VERSION}; use the release that wrote it"
            )
        for key, mine in (("method", self.rule.name), ("tasks", list(self.tasks))):
            if extra[key] != mine:
                raise ValueError(f"state is for {key} {extra[key]!r}, this balancer has {mine!r}; make one like it")
        expected = dict(self.named_buffers())
        if set(found) != set(expected):
            missing, unexpected = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
            raise ValueError(
                f"state does not fit the options of this balancer: missing {missing}, unexpected {unexpected}; make "
                "the balancer with the options it was saved with"
            )
        size = self._generator.get_state().shape
        if extra["random"].dtype != torch.uint8 or extra["random"].shape != size:
            raise ValueError(
                "state has a random stream of another kind; it is damaged, or from another version of torch"
            )
        for name, buffer in expected.items():
            if not isinstance(found[name], Tensor):
                raise ValueError(
                    f"state has {name} of type {type(found[name]).__name__}, expected a tensor; it is damaged"
                )
            if found[name].dtype != buffer.dtype:
                raise ValueError(
                    f"state has {name} of type {found[name].dtype}, expected {buffer.dtype}; make the balancer with "
                    "the options it was saved with"
                )
            if found[name].shape != buffer.shape:
                raise ValueError(
                    f"state has {name} of shape {tuple(found[name].shape)}, expected {tuple(buffer.shape)}; the shared "
                    "parameters or options differ from those it was saved with"
                )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.half()` or `.to(dtype)` on a model that owns the balancer must move its state, not round it.
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self
