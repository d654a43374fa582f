"""Tasks that come and go: a balancer's state by the names of the tasks."""

import math
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excessmtl.graph.problems import GraphChecks
from excessmtl.methods.base import Rule
from excessmtl.step import inputs
from excessmtl.step.notices import Watch
from excessmtl.step.state import Memory, check_keys

if TYPE_CHECKING:
    from excessmtl.balancer import Balancer

_STATE = "state_"
_OF_MEMORY = ("weights", "skipped", "in_a_row")


@dataclass(frozen=True)
class _Saved:
    """A state, and whose it is."""

    tasks: Sequence[str]
    buffers: Mapping[str, Tensor]
    steps: int
    random: Tensor


def take_tasks(balancer: "Balancer", names: tuple[str, ...]) -> None:
    """Make these the tasks of the balancer; those that it had already keep their state."""
    memory = balancer.memory
    mine = dict(memory.named_buffers())
    _change(balancer, names, _Saved(balancer.tasks, mine, memory.steps, memory.generator.get_state()))


def load_matching(balancer: "Balancer", state_dict: Mapping[str, Any]) -> Any:
    """Take from a state what it knows of the balancer's tasks."""
    rule, memory = balancer.rule, balancer.memory
    check_keys(balancer, state_dict)
    saved_buffers = {name.removeprefix("memory."): value for name, value in state_dict.items()}
    rows = _rows(rule, len(balancer.tasks), balancer._shared.shapes)

    def shapes(tasks: int) -> dict[str, torch.Size]:
        return {
            name: torch.Size([tasks, *buffer.shape[1:]]) if name in rows else buffer.shape
            for name, buffer in memory.named_buffers()
        }

    values = {option.name: getattr(rule, option.name) for option in fields(rule)}
    per_task = [name for name, value in values.items() if isinstance(value, tuple)]
    memory.options = balancer._options()
    extra = memory.check_matching(saved_buffers, shapes, [*per_task, "protect", *rule.places])
    if not set(extra["tasks"]) & set(balancer.tasks):
        raise ValueError(f"state is for tasks {extra['tasks']}, this balancer has {list(balancer.tasks)}; none matches")
    _check_places(balancer, extra)
    if set(extra["tasks"]) == set(balancer.tasks):
        _check_per_task(balancer, extra, {name: values[name] for name in per_task})
    _change(balancer, balancer.tasks, _Saved(extra["tasks"], saved_buffers, extra["steps"], extra["random"]))
    return nn.Module().load_state_dict({})  # what it returns where nothing is missing


def by_name(rule: Rule, tasks: Sequence[str]) -> Rule:
    """The rule with names in place of places among the tasks, which go on meaning the same when tasks change."""
    bound = rule.bind(tasks)
    return replace(rule, **{option: tasks[getattr(bound, option)] for option in rule.places})


def _check_places(balancer: "Balancer", extra: Mapping[str, Any]) -> None:
    """A ValueError where an option names another task than the state does. One that is no longer there may differ."""
    for option in balancer.rule.places:
        place, mine = _literal(option, extra), balancer.tasks[getattr(balancer.rule, option)]
        saved = extra["tasks"][place] if place in range(len(extra["tasks"])) else place
        if saved != mine and (saved in balancer.tasks or saved is place):
            raise ValueError(
                f"state was saved with {option}={saved!r}, this balancer has {option}={mine!r}; make the balancer with "
                "the options it was saved with"
            )


def _check_per_task(balancer: "Balancer", extra: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """A ValueError where options of the same tasks, in another order, differ from those of the state."""
    for option, value in {**mine, "protect": balancer.protect}.items():
        saved, expected = _by_task(extra["tasks"], _literal(option, extra)), _by_task(balancer.tasks, value)
        if saved != expected:
            raise ValueError(
                f"state was saved with {option}={saved}, this balancer has {option}={expected}; make the balancer with "
                "the options it was saved with"
            )


def _by_task(tasks: Sequence[str], value: Any) -> Any:
    """Values in task order by name. Sums depend on the order, so numbers are rounded."""
    if not isinstance(value, tuple) or len(value) != len(tasks):
        return value
    rounded = [float(f"{item:.12g}") if isinstance(item, float) else item for item in value]
    return dict(zip(tasks, rounded, strict=True))


def _literal(option: str, extra: Mapping[str, Any]) -> Any:
    """An option of the state; None where it is not there or cannot be read."""
    try:
        return literal_eval(extra["options"].get(option))
    except (SyntaxError, TypeError, ValueError):
        return None


def _change(balancer: "Balancer", tasks: tuple[str, ...], saved: _Saved) -> None:
    """A balancer of these tasks, with what is known of them. Nothing has changed where this raises."""
    names = inputs.task_names(tasks)
    if balancer.accumulating:
        raise ValueError("tasks cannot change between two micro-batches of a step; change them after the last one")
    try:
        rule = balancer._given.bind(names)
    except ValueError as error:
        raise ValueError(
            f"an option of {balancer.rule.name!r} is given per task ({error}); make a balancer with the new tasks, and "
            'load the state by load_state_dict(state, tasks="match")'
        ) from error
    kept = {task: share for task, share in balancer.protect.items() if task in names}
    protect, floors = inputs.floors(rule, kept, names)
    memory = Memory(rule, names, balancer._shared.shapes, {}).to(balancer.weights.device)
    _carry(rule, saved, names, memory, _rows(rule, len(names), balancer._shared.shapes))
    memory.steps = saved.steps
    memory.generator.set_state(saved.random)
    balancer.rule, balancer.tasks, balancer.memory = rule, names, memory
    balancer.protect, balancer._floors = protect, floors
    memory.options = balancer._options()
    balancer._checks, balancer._watch = GraphChecks(), Watch(names)
    balancer.discard()
    balancer.engine.forget()


def _rows(rule: Rule, tasks: int, shapes: Sequence[torch.Size]) -> frozenset[str]:
    """The buffers that have a row per task; a ValueError where one depends on the tasks in another way."""
    with torch.device("meta"):
        now, more = rule.init(tasks, list(shapes)), rule.init(tasks + 1, list(shapes))
    rows = set(_OF_MEMORY)
    for name, tensor in now.items():
        if tuple(more[name].shape) == (tasks + 1, *tensor.shape[1:]) and tensor.shape[:1] == (tasks,):
            rows.add(_STATE + name)
        elif more[name].shape != tensor.shape:
            raise ValueError(
                f"{rule.name!r} keeps {name} of shape {tuple(tensor.shape)}, which has no row per task, so its tasks "
                "cannot change; make a new balancer"
            )
    return frozenset(rows)


def _carry(rule: Rule, saved: _Saved, names: Sequence[str], memory: Memory, rows: frozenset[str]) -> None:
    """Fill a new state with what is saved."""
    known = [task for task in names if task in saved.tasks]
    to = [names.index(task) for task in known]
    new = [place for place, task in enumerate(names) if task not in saved.tasks]
    come_from = [list(saved.tasks).index(task) for task in known]
    with torch.no_grad():
        for name, buffer in memory.named_buffers():
            old = saved.buffers[name].to(buffer.device)
            if name not in rows:
                buffer.copy_(old)
                continue
            buffer[to] = old[come_from]
            if name.removeprefix(_STATE) in rule.logits and known:
                buffer[new] = old[come_from].logsumexp(0) - math.log(len(known))
        total = rule.total(len(names))
        if total is not None and set(names) != set(saved.tasks):
            _share_out(memory.weights, to, new, total, rule.prior(len(names)))


def _share_out(weights: Tensor, to: Sequence[int], new: Sequence[int], total: float, prior: Tensor) -> None:
    """Scale the weights of known tasks so that all sum to `total`; those of new tasks are there already."""
    left = total - weights[list(new)].sum()
    known = weights[list(to)].sum()
    if known > 0 and left > 0:
        weights[list(to)] *= left / known
    else:  # weights of both signs have no shares
        weights.copy_(prior)
