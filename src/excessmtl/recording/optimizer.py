"""An optimiser whose step is part of a recording where torch allows that, and follows it where not."""

import operator
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_NOT_SETTINGS = ("params", "lr", "initial_lr")
"""Entries of a group of parameters that may change; the last is a note of schedulers to themselves."""


class RecordedOptimizer:
    """Takes an optimiser's steps, and knows whether a recording may take them.

    It may where every group of parameters is `capturable`. A learning rate is then made a tensor on the device, which
    schedulers (and whoever assigns to `group["lr"]`) change from outside; the other settings are part of the
    recording. Where one of them changes later, the optimiser steps beside the recording from then on.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        hooks = (getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post"))
        capturable = all(group.get("capturable") for group in optimizer.param_groups)
        self.recordable = capturable and not any(hooks)  # hooks would run with the recording, and never again
        self._rates: list[Tensor] = []
        self._recorded: tuple[list[Any], list[object]] | None = None

    def step(self) -> None:
        """One step."""
        if not self.recordable:
            self.optimizer.step()
            return
        with warnings.catch_warnings():  # torch wonders why a capturable optimiser takes steps as they are: to warm up
            warnings.filterwarnings("ignore", message=".*capturable=True")
            self.optimizer.step()

    def place_learning_rates(self, device: torch.device) -> None:
        """Put every learning rate where a recording reads it."""
        if self._rates and self._rates[0].device != device:
            self._rates = []
        for index, group in enumerate(self.optimizer.param_groups if self.recordable else ()):
            rate = group["lr"]
            if index == len(self._rates):
                on_device = isinstance(rate, Tensor) and rate.device == device
                self._rates.append(rate if on_device else torch.empty((), device=device))
            if rate is not self._rates[index]:
                group["lr"] = self._rates[index].fill_(rate.reshape(()) if isinstance(rate, Tensor) else rate)

    def remember(self) -> None:
        """Keep what a recording that was just made knows about the optimiser."""
        self._recorded = self._settings(), self._objects()

    def unchanged(self) -> bool:
        """Whether the recordings are still right: not with another or an emptied state, nor with other settings."""
        if self._recorded is None:
            return True
        settings, objects = self._recorded
        same = settings == self._settings()
        if same and all(map(operator.is_, objects, self._objects())):
            return True
        self.recordable, self._recorded = self.recordable and same, None
        return False

    def _settings(self) -> list[dict[str, Any]]:
        groups = self.optimizer.param_groups
        return [{name: group[name] for name in group if name not in _NOT_SETTINGS} for group in groups]

    def _objects(self) -> list[object]:
        state = self.optimizer.state
        return [state, self.optimizer.param_groups, next(iter(state.values()), None)]
