"""Weights on the simplex that go on from step to step: tasks that take part share out what they had together."""

import torch
from torch import Tensor

State = dict[str, Tensor]


def carried_state(tasks: int) -> State:
    """Equal weights."""
    return {"simplex": torch.full((tasks,), 1 / tasks)}


def among_present(state: State, ok: Tensor) -> Tensor:
    """[m] the weights of the tasks that take part, scaled to sum to one; zero for the others."""
    mine = torch.where(ok, state["simplex"], 0)
    had = mine.sum()
    return mine / torch.where(had > 0, had, 1)


def carried(state: State, ok: Tensor, shares: Tensor) -> Tensor:
    """[m] the weights of all tasks, after those that take part have shared out what they had in these shares."""
    return torch.where(ok, torch.where(ok, state["simplex"], 0).sum() * shares, state["simplex"])
