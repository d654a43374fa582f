"""`check_rule(MyRule)`: what every weighting rule owes, checked on a small network; for authors of rules.

It is to rules what scikit-learn's `check_estimator` is to estimators: all rules of this package pass. It needs no test
framework. What a rule declares (`uses`, `uses_host`, `places`, `chained`, `simplex`, `total`) decides what it is given
and what is asked of it.
"""

import random
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Factory, State
from excessmtl.methods.observation import Observation
from excessmtl.step.result import Step
from excessmtl.testing.training import OUTPUTS, HostReads, Losses, Training, Update

Make = Callable[..., Training]
"""Makes the training of a seed, with other arguments of `Training` where a check wants them."""


def check_rule(rule: Factory, *, seeds: Iterable[int] = range(5), **options: Any) -> None:
    """Check a rule, with these options, and raise an AssertionError that says which check it fails.

    Args:
        rule: The class of the rule, or a function that makes it; it need not be registered.
        seeds: Each draws a network and batches, and has 1 to 5 tasks: the seeds 0 to 4 have 3, 4, 5, 1 and 2.
        options: Those of the rule.

    Example:
        >>> def test_my_rule():
        ...     excessmtl.testing.check_rule(MyRule, power=2.0)
    """
    title = getattr(rule, "__name__", repr(rule))
    if isinstance(rule, type) and not hasattr(rule, "name"):
        rule = type(title, (rule,), {"name": title})
    for seed in seeds:
        tasks = tuple(OUTPUTS)[: (seed + 2) % 5 + 1]
        for about, check in CHECKS.items():
            try:
                check(partial(Training, rule, options, tasks=tasks, seed=seed))
            except AssertionError as error:
                where = f"{title} fails the check of {about} with {len(tasks)} tasks and seed {seed}"
                raise AssertionError(f"{where}: {error}") from error


def _close(first: Any, second: Any, sentence: str, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """Equal to rounding; `sentence` says what it means where they are not."""
    try:
        torch.testing.assert_close(first, second, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        raise AssertionError(f"{sentence} ({' '.join(str(error).split())[:160]})") from error


def _identical(first: Any, second: Any, sentence: str) -> None:
    _close(first, second, sentence, rtol=0, atol=0)


def _numbers(training: Training, step: Step, when: str) -> None:
    """Weights, gradients and state are finite; weights are on the simplex where the rule promises it."""
    assert step.weights.isfinite().all(), f"{when} the weights are not finite: {step.weights.tolist()}"
    assert all(g.isfinite().all() for g in training.gradients()), f"{when} a gradient is not finite"
    for key, value in training.balancer.state.items():
        assert value.isfinite().all(), f"{when} the state {key!r} is not finite: {value.tolist()}"
    if training.balancer.rule.simplex and not step.losses.isnan().any():  # all tasks take part
        weights = training.balancer.weights
        assert (weights >= 0).all(), f"{when} a weight is negative ({weights.tolist()}); declare simplex = False"
        _close(weights.sum(), torch.tensor(1.0), f"{when} the weights do not sum to 1; declare simplex = False")


# ------------------------------------------------------------------ what `update` does with its arguments


def _check_arguments(make: Make) -> None:
    def watch(update: Update, state: State, seen: Observation) -> Decision:
        given = {**state, "losses": seen.losses, "ok": seen.ok, **{f"rows[{i}]": r for i, r in enumerate(seen.rows)}}
        before = {name: tensor.clone() for name, tensor in given.items()}
        decision = update(state, seen)
        for name, tensor in given.items():
            _identical(tensor, before[name], f"update changes {name!r} in place; make a new tensor")
        assert decision.state.keys() == state.keys(), (
            f"update returns the state {sorted(decision.state)} where init has made {sorted(state)}"
        )
        for name, tensor in decision.state.items():
            assert (tensor.dtype, tensor.shape) == (state[name].dtype, state[name].shape), (
                f"the state {name!r} becomes {tensor.dtype} {list(tensor.shape)}; init has made it "
                f"{state[name].dtype} {list(state[name].shape)}"
            )
        wanted = (torch.float32, (seen.tasks,))
        assert (decision.weights.dtype, tuple(decision.weights.shape)) == wanted, (
            f"the weights are {decision.weights.dtype} {list(decision.weights.shape)}, not fp32, one per task"
        )
        return decision

    training = make(watch=watch)
    kinds = (torch.float32, torch.bool, torch.int32, torch.int64)
    for name, tensor in training.balancer.state.items():
        assert tensor.dtype in kinds, f"init makes the state {name!r} of type {tensor.dtype}; take fp32 or integers"
    for number in range(3):
        _numbers(training, training.step(number), "with all tasks")


def _check_repeatable(make: Make) -> None:
    def watch(update: Update, state: State, seen: Observation) -> Decision:
        first, again = (
            update(state, replace(seen, random_stream=lambda: seen.random_stream().manual_seed(5))) for _ in range(2)
        )
        sentence = (
            "update gives another result for the same arguments; draw random numbers from seen.generator, and keep "
            "nothing outside the state"
        )
        parts = [(decision.weights, decision.state, decision.direction, decision.gates) for decision in (first, again)]
        _identical(parts[0], parts[1], sentence)
        return first

    training = make(watch=watch)
    for number in range(2):
        training.step(number)


def _check_host(make: Make) -> None:
    def watch(update: Update, state: State, seen: Observation) -> Decision:
        if rule_uses_host():
            return update(state, seen)
        with HostReads():
            return update(state, seen)

    def rule_uses_host() -> bool:
        return training.balancer.rule.uses_host

    training = make(watch=watch)
    for number in range(3):
        training.step(number)
    assert rule_uses_host() or not training.drawn, "update draws from seen.generator; declare uses_host = True"


# ------------------------------------------------------------------ tasks


def _place(training: Training) -> int:
    """Of the task that some steps leave out."""
    return len(training.balancer.tasks) // 2


def _others(training: Training) -> list[int]:
    return [place for place in range(len(training.balancer.tasks)) if place != _place(training)]


def _without(task: str) -> Callable[[Losses], Losses]:
    return lambda losses: {name: loss for name, loss in losses.items() if name != task}


def _bad(*tasks: str) -> Callable[[Losses], Losses]:
    return lambda losses: {name: loss * (torch.nan if name in tasks else 1) for name, loss in losses.items()}


def _check_order(make: Make) -> None:
    first = make()
    tasks = first.balancer.tasks
    mixed = list(tasks)
    if first.balancer.rule.chained:
        mixed.reverse()
    else:
        random.Random(first.seed).shuffle(mixed)
    second = make(tasks=mixed)
    places = [mixed.index(task) for task in tasks]
    absent = _without(tasks[_place(first)])
    changes: list[Callable[[Losses], Losses]] = [dict, dict, *([absent] if len(tasks) > 1 else [])]
    for number, change in enumerate(changes):
        weights, others = (training.step(number, change).weights for training in (first, second))
        if first.drawn:  # draws come in the order of the tasks
            return
        when = "where a task is missing " if change is absent else ""
        sentence = f"{when}the weights depend on the places of the tasks; reduce over all tasks, by seen.ok"
        # Sums over tasks in another order: solvers carry the rounding on.
        _close(others[places], weights, sentence, rtol=1e-3, atol=1e-5)
        sentence = f"{when}the gradients depend on the places of the tasks"
        _close(second.gradients(), first.gradients(), sentence, rtol=1e-3, atol=1e-5)


def _own_rows(training: Training) -> State:
    """The state of the task that is left out."""
    state, tasks = training.balancer.state, len(training.balancer.tasks)
    return {key: value[_place(training)].clone() for key, value in state.items() if value.dim() and len(value) == tasks}


def _started(make: Make) -> tuple[Training, Tensor, State]:
    training = make()
    training.step(0)
    weights = training.step(1).weights.clone()
    return training, weights, _own_rows(training)


def _check_missing(make: Make) -> None:
    training, before, rows = _started(make)
    place = _place(training)
    if not _others(training):
        return
    step = training.step(2, _without(training.balancer.tasks[place]))
    _numbers(training, step, "where a task is missing")
    _identical(step.weights[place], before[place], "a task that is missing does not keep its weight")
    sentence = "the state of a task that is missing changes; keep it with torch.where(seen.ok, new, old)"
    _identical(_own_rows(training), rows, sentence)
    assert not step.skipped, f"tasks {step.skipped} are skipped where one is missing"


def _check_non_finite(make: Make) -> None:
    training, _, rows = _started(make)
    place, others = _place(training), _others(training)
    if not others:
        return
    absent = training.balancer.tasks[place]
    step = training.step(2, _bad(absent))
    _numbers(training, step, "where the loss of a task is NaN")
    assert step.skipped == (absent,), f"the loss of {absent} is NaN, and the tasks skipped are {step.skipped}"
    assert step.weights[place] == 0, "a task whose loss is NaN has a weight"
    sentence = "the state of a task whose loss is NaN changes; keep it with torch.where(seen.ok, new, old)"
    _identical(_own_rows(training), rows, sentence)
    other, _, _ = _started(make)
    wanted = other.step(2, _without(absent)).weights
    sentence = "a task whose loss is NaN changes the weights of the others, beside what its absence does"
    _close(step.weights[others], wanted[others], sentence)


def _each(change: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Losses], Losses]:
    """A change of the loss of every task, from its own loss, that of the first task, and its place."""

    def changed(losses: Losses) -> Losses:
        first = next(iter(losses.values()))
        return {task: change(loss, first, place) for place, (task, loss) in enumerate(losses.items())}

    return changed


DEGENERATE: dict[str, Callable[[Losses], Losses]] = {
    "where all losses are zero": _each(lambda loss, first, place: loss * 0),
    "where one loss is zero": _each(lambda loss, first, place: loss * (place != 0)),
    "where all tasks have one loss": _each(lambda loss, first, place: first),
    "where all gradients are nearly parallel": _each(lambda loss, first, place: first + 1e-6 * loss),
    "where two tasks are opposed": _each(lambda loss, first, place: 3 - first if place == 1 else loss),
    "where all tasks but one are opposed to it": _each(lambda loss, first, place: 3 - first if place else loss),
    "where losses are tiny": _each(lambda loss, first, place: loss * 1e-18),
    "where a loss is huge": _each(lambda loss, first, place: loss * (1e12 if place == 0 else 1)),
    "where all losses are huge": _each(lambda loss, first, place: loss * 1e15),
    "where losses differ by ten orders": _each(lambda loss, first, place: loss * 10.0 ** (5 * place - 6)),
}


def _then(first: Callable[[Losses], Losses], second: Callable[[Losses], Losses]) -> Callable[[Losses], Losses]:
    return lambda losses: second(first(losses))


def _check_degenerate(make: Make) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*parameters outside shared are reached by several tasks")
        warnings.filterwarnings("ignore", "every task of a step was left out")
        for when, change in DEGENERATE.items():
            training = make()
            tasks = training.balancer.tasks
            for number, bad in enumerate(((), tasks, tasks[1:])):
                _numbers(training, training.step(number, _then(change, _bad(*bad))), when)


# ------------------------------------------------------------------ the balancer around the rule


def _check_resume(make: Make) -> None:
    training, resumed = make(), make()
    for number in range(1 + training.seed % 4):
        training.step(number)
    resumed.balancer.load_state_dict({key: value.clone() for key, value in training.balancer.state_dict().items()})
    sentence = "a balancer that has loaded the state goes on differently; keep everything in the state of `init`"
    for number in range(4, 7):
        weights, others = (run.step(number).weights for run in (training, resumed))
        _identical(others, weights, sentence)
        _identical(resumed.gradients(), training.gradients(), sentence)
    _identical(resumed.balancer.state_dict(), training.balancer.state_dict(), sentence)


def _check_scale(make: Make) -> None:
    def take(scale: Any) -> tuple[Training, Tensor]:
        training = make(scale=scale)
        return training, training.step(0).weights

    published, weights = take(1.0)
    larger, multiplied = take(2.5)
    _close(multiplied, 2.5 * weights, "scale=2.5 does not multiply the weights by 2.5")
    scaled = [2.5 * gradient for gradient in published.gradients("trunk")]
    _close(larger.gradients("trunk"), scaled, "scale=2.5 does not multiply the gradient by 2.5")
    tasks = len(published.balancer.tasks)
    total = published.balancer.rule.total(tasks)
    for scale, wanted in (("sum", float(tasks)), ("mean", 1.0)):
        applied = take(scale)[1]
        if total is None:
            _identical(applied, weights, f"scale={scale!r} changes weights whose total is part of the method")
        else:
            sentence = (
                f"scale={scale!r} makes the weights sum to {float(applied.sum()):.4g}, not {wanted:.0f}; see total"
            )
            _close(applied.sum(), torch.tensor(wanted), sentence)


def _check_ways(make: Make) -> None:
    fast, weighted = make(), make(heads="weighted")
    others: dict[str, tuple[Training, dict[str, Any]]] = {
        'engine="reference"': (make(engine="reference"), {}),
        "at=z": (make(), {"at": True}),
        "the scalar form": (make(), {"scalar": True}),
        'the scalar form with engine="reference"': (make(engine="reference"), {"scalar": True}),
    }
    for number in range(3):
        wanted = fast.step(number).weights
        weighted.step(number)
        for way, (other, how) in others.items():
            _close(other.step(number, **how).weights, wanted, f"{way} gives other weights")
            _close(other.gradients("trunk"), fast.gradients("trunk"), f"{way} gives another gradient")
            heads = weighted if how.get("scalar") else fast
            _close(other.gradients("heads"), heads.gradients("heads"), f"{way} gives the heads another gradient")


Check = Callable[[Make], None]
CHECKS: dict[str, Check] = {
    "what update does with its arguments": _check_arguments,
    "repeatability": _check_repeatable,
    "host reads": _check_host,
    "the order of tasks": _check_order,
    "missing tasks": _check_missing,
    "non-finite values": _check_non_finite,
    "degenerate steps": _check_degenerate,
    "resuming": _check_resume,
    "scale": _check_scale,
    "ways of computing gradients": _check_ways,
}
"""By what they are about."""
