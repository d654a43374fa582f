"""The reference engine: plain, complete, one backward pass per task. `excessmtl.fast` gives the same numbers sooner."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from excessmtl.engine.per_task import per_task_gradients
from excessmtl.engine.plan import Call, Plan, plan
from excessmtl.engine.task_gradients import TaskGradients

T = TypeVar("T")
Evaluate = Callable[[TaskGradients], T]
"""From the gradients of a batch to whatever is made of them; changes nothing else."""
Key = Callable[[], Hashable]
"""Returns what is equal for steps in which a decision takes the same operations; None for those that stand alone."""


class Engine(Protocol):
    """What a balancer asks for in every step."""

    def plan(self, call: Call) -> Plan:
        """How far the backward pass of each task goes."""

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""

    def evaluate(self, function: Any, gradients: TaskGradients, plan: Plan, key: Key) -> Any:
        """`function(gradients)`."""

    def forget(self) -> None:
        """Drop whatever depends on where the balancer's state is in memory."""


class ReferenceEngine:
    """One backward pass per task."""

    def plan(self, call: Call) -> Plan:
        """How far the backward pass of each task goes."""
        return plan(call)

    def task_gradients(self, plan: Plan) -> TaskGradients:
        """The gradients of every task."""
        return per_task_gradients(plan)

    def evaluate(self, function: Evaluate[T], gradients: TaskGradients, plan: Plan, key: Key) -> T:
        """`function(gradients)`."""
        return function(gradients)

    def forget(self) -> None:
        """Nothing here depends on where the balancer's state is in memory."""
