"""A balancer's state: complete from the start, fp32 whatever the model, strict and versioned when loaded."""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from excessmtl.methods.base import Rule, State

_VERSION = 1
_PREFIX = "state_"


class StatefulModule(nn.Module):
    """Keeps a rule's state in buffers, with the step counter and the random stream beside them."""

    weights: Tensor
    """[m] the weights last decided, without `scale`."""
    skipped: Tensor
    """[m] in how many steps each task was left out because something about it was not finite."""

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
        for name in self._state_names:
            setattr(self, _PREFIX + name, state[name].detach())

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
        self._generator.set_state(state["random"].cpu())

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        self._check_fits({k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)})
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _check_fits(self, found: dict[str, Any]) -> None:
        extra = found.pop("_extra_state", None)
        if not isinstance(extra, dict) or "version" not in extra:
            raise ValueError("state has no '_extra_state' entry of a balancer; pass what state_dict() returned")
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
        for name, buffer in expected.items():
            if found[name].shape != buffer.shape:
                raise ValueError(
                    f"state has {name} of shape {tuple(found[name].shape)}, expected {tuple(buffer.shape)}; the shared "
                    "parameters or options differ from those it was saved with"
                )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.half()` or `.to(dtype)` on a model that owns the balancer must move its state, not round it.
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self
