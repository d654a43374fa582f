"""An optimiser whose step is part of a recording where torch allows that, and follows it where not."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_NOT_SETTINGS = ("params", "lr", "initial_lr")
"""Entries of a group of parameters that may change; the last is a note of schedulers to themselves."""


class OptimizerSteps:
    """Takes an optimiser's steps, and knows whether a recording may take them.

    It may where every group of parameters is `capturable`. A learning rate is then made a tensor on the device, which
    schedulers (and whoever assigns to `group["lr"]`) change from outside; the other settings are part of the
    recording. Where one of them changes later, the optimiser steps beside the recording from then on.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        hooks = (getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post"))
        capturable = all(group.get("capturable") for group in optimizer.param_groups)
        self.inside = capturable and not any(hooks)  # hooks would run when the step is recorded, and never again
        self._rates: list[Tensor] = []
        self._recorded: tuple[tuple[object, ...], list[dict[str, Any]]] | None = None

    @property
    def parameters(self) -> Iterator[Tensor]:
        """All parameters it changes."""
        return (parameter for group in self.optimizer.param_groups for parameter in group["params"])

    def step(self) -> None:
        """One step."""
        if not self.inside:
            self.optimizer.step()
            return
        with warnings.catch_warnings():  # torch wonders why a capturable optimiser takes steps as they are: to warm up
            warnings.filterwarnings("ignore", message=".*capturable=True")
            self.optimizer.step()

    def settle(self, device: torch.device) -> None:
        """Put every learning rate where a recording looks for it."""
        if self._rates and self._rates[0].device != device:
            self._rates = []
        for index, group in enumerate(self.optimizer.param_groups if self.inside else ()):
            rate = group["lr"]
            if index == len(self._rates):
                there = isinstance(rate, Tensor) and rate.device == device
                self._rates.append(rate if there else torch.empty((), device=device))
            place = self._rates[index]
            if rate is not place:
                group["lr"] = place.fill_(rate.reshape(()) if isinstance(rate, Tensor) else rate)

    def note_recorded(self) -> None:
        """Remember what a recording knows about the optimiser."""
        self._recorded = self._objects(), self._settings()

    def still_recorded(self) -> bool:
        """Whether the recordings are still right: not with another or an emptied state, nor with other settings."""
        if self._recorded is None:
            return True
        objects, settings = self._recorded
        same = settings == self._settings()
        if same and all(one is other for one, other in zip(objects, self._objects(), strict=True)):
            return True
        self.inside, self._recorded = self.inside and same, None
        return False

    def _objects(self) -> tuple[object, ...]:
        state = self.optimizer.state
        return state, self.optimizer.param_groups, next(iter(state.values()), None)

    def _settings(self) -> list[dict[str, Any]]:
        groups = self.optimizer.param_groups
        return [{name: group[name] for name in group if name not in _NOT_SETTINGS} for group in groups]
