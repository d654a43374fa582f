"""`check_rule(MyRule)`: what every weighting rule owes, checked on a small network; for authors of rules.

It is to rules what scikit-learn's `check_estimator` is to estimators: all rules of this package pass. It needs no test
framework. What a rule declares (`uses`, `uses_host`, `places`, `chained`, `simplex`, `total`) decides what it is given
and what is asked of it.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from excessmtl.methods.base import Decision, Factory, State
from excessmtl.methods.observation import Observation
from excessmtl.step.result import Step
from excessmtl.testing.training import TASKS, HostReads, Losses, Training, Update


def check_rule(rule: Factory, **options: Any) -> None:
    """Check a rule, with these options, and raise an AssertionError that says which check it fails.

    Args:
        rule: The class of the rule, or a function that makes it; it need not be registered.
        options: Those of the rule.

    Example:
        >>> def test_my_rule():
        ...     excessmtl.testing.check_rule(MyRule, power=2.0)
    """
    title = getattr(rule, "__name__", repr(rule))
    if isinstance(rule, type) and not hasattr(rule, "name"):
        rule = type(title, (rule,), {"name": title})
    for about, check in CHECKS.items():
        try:
            check(rule, options)
        except AssertionError as error:
            raise AssertionError(f"{title} fails the check of {about}: {error}") from error


def _close(first: Any, second: Any, sentence: str, rtol: float = 1e-3, atol: float = 1e-5) -> None:
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


def _check_arguments(rule: Factory, options: Mapping[str, Any]) -> None:
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

    training = Training(rule, options, watch=watch)
    kinds = (torch.float32, torch.bool, torch.int32, torch.int64)
    for name, tensor in training.balancer.state.items():
        assert tensor.dtype in kinds, f"init makes the state {name!r} of type {tensor.dtype}; take fp32 or integers"
    for number in range(3):
        _numbers(training, training.step(number), "with all tasks")


def _check_repeatable(rule: Factory, options: Mapping[str, Any]) -> None:
    def watch(update: Update, state: State, seen: Observation) -> Decision:
        first, again = (
            update(state, replace(seen, random_stream=lambda: seen.random_stream().manual_seed(5))) for _ in range(2)
        )
        sentence = (
            "update gives another result for the same arguments; draw random numbers from seen.generator, and keep "
            "nothing outside the state"
        )
        parts = [(one.weights, one.state, one.direction, one.gates) for one in (first, again)]
        _identical(parts[0], parts[1], sentence)
        return first

    training = Training(rule, options, watch=watch)
    for number in range(2):
        training.step(number)


def _check_host(rule: Factory, options: Mapping[str, Any]) -> None:
    def watch(update: Update, state: State, seen: Observation) -> Decision:
        if rule_uses_host():
            return update(state, seen)
        with HostReads():
            return update(state, seen)

    def rule_uses_host() -> bool:
        return training.balancer.rule.uses_host

    training = Training(rule, options, watch=watch)
    for number in range(3):
        training.step(number)
    assert rule_uses_host() or not training.drawn, "update draws from seen.generator; declare uses_host = True"


# ------------------------------------------------------------------ tasks


def _without_b(losses: Losses) -> Losses:
    return {task: loss for task, loss in losses.items() if task != "b"}


def _bad_b(losses: Losses) -> Losses:
    return {task: loss * torch.nan if task == "b" else loss for task, loss in losses.items()}


def _check_order(rule: Factory, options: Mapping[str, Any]) -> None:
    first = Training(rule, options)
    mixed = ("c", "b", "a") if first.balancer.rule.chained else ("b", "c", "a")
    second = Training(rule, options, tasks=mixed)
    places = [mixed.index(task) for task in TASKS]
    changes: list[Callable[[Losses], Losses]] = [dict, dict, _without_b]
    for number, change in enumerate(changes):
        weights, others = (training.step(number, change).weights for training in (first, second))
        if first.drawn:  # draws come in the order of the tasks
            return
        when = "where a task is missing " if change is _without_b else ""
        sentence = f"{when}the weights depend on the places of the tasks; reduce over all tasks, by seen.ok"
        _close(others[places], weights, sentence)
        _close(second.gradients(), first.gradients(), f"{when}the gradients depend on the places of the tasks")


def _rows_of_b(training: Training) -> State:
    state = training.balancer.state
    return {key: value[1].clone() for key, value in state.items() if value.dim() and len(value) == len(TASKS)}


def _started(rule: Factory, options: Mapping[str, Any]) -> tuple[Training, Tensor, State]:
    training = Training(rule, options)
    training.step(0)
    weights = training.step(1).weights.clone()
    return training, weights, _rows_of_b(training)


def _check_missing(rule: Factory, options: Mapping[str, Any]) -> None:
    training, before, rows = _started(rule, options)
    step = training.step(2, _without_b)
    _numbers(training, step, "where a task is missing")
    _identical(step.weights[1], before[1], "a task that is missing does not keep its weight")
    sentence = "the state of a task that is missing changes; keep it with torch.where(seen.ok, new, old)"
    _identical(_rows_of_b(training), rows, sentence)
    assert not step.skipped, f"tasks {step.skipped} are skipped where one is missing"


def _check_non_finite(rule: Factory, options: Mapping[str, Any]) -> None:
    training, _, rows = _started(rule, options)
    step = training.step(2, _bad_b)
    _numbers(training, step, "where the loss of a task is NaN")
    assert step.skipped == ("b",), f"the loss of b is NaN, and the tasks skipped are {step.skipped}"
    assert step.weights[1] == 0, "a task whose loss is NaN has a weight"
    sentence = "the state of a task whose loss is NaN changes; keep it with torch.where(seen.ok, new, old)"
    _identical(_rows_of_b(training), rows, sentence)
    other, _, _ = _started(rule, options)
    wanted = other.step(2, _without_b).weights
    sentence = "a task whose loss is NaN changes the weights of the others, beside what its absence does"
    _close(step.weights[[0, 2]], wanted[[0, 2]], sentence)


DEGENERATE: dict[str, Callable[[Losses], Losses]] = {
    "where all losses are zero": lambda losses: {task: loss * 0 for task, loss in losses.items()},
    "where one loss is zero": lambda losses: {**losses, "b": losses["b"] * 0},
    "where all tasks have one loss": lambda losses: dict.fromkeys(losses, losses["b"]),
    "where two tasks are opposed": lambda losses: {**losses, "a": 3 - losses["b"]},
    "where losses are tiny": lambda losses: {task: loss * 1e-18 for task, loss in losses.items()},
    "where a loss is huge": lambda losses: {**losses, "c": losses["c"] * 1e12},
}


def _check_degenerate(rule: Factory, options: Mapping[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*parameters outside shared are reached by several tasks")
        for when, change in DEGENERATE.items():
            training = Training(rule, options)
            for number in range(2):
                _numbers(training, training.step(number, change), when)
    alone = Training(rule, options, tasks=("a",))
    for number in range(2):
        _numbers(alone, alone.step(number), "with one task alone")


# ------------------------------------------------------------------ the balancer around the rule


def _check_resume(rule: Factory, options: Mapping[str, Any]) -> None:
    training, resumed = Training(rule, options), Training(rule, options)
    for number in range(3):
        training.step(number)
    resumed.balancer.load_state_dict({key: value.clone() for key, value in training.balancer.state_dict().items()})
    sentence = "a balancer that has loaded the state goes on differently; keep everything in the state of `init`"
    for number in range(3, 6):
        weights, others = (one.step(number).weights for one in (training, resumed))
        _identical(others, weights, sentence)
        _identical(resumed.gradients(), training.gradients(), sentence)
    _identical(resumed.balancer.state_dict(), training.balancer.state_dict(), sentence)


def _check_scale(rule: Factory, options: Mapping[str, Any]) -> None:
    def take(scale: Any) -> tuple[Training, Tensor]:
        training = Training(rule, options, scale=scale)
        return training, training.step(0).weights

    published, weights = take(1.0)
    larger, multiplied = take(2.5)
    _close(multiplied, 2.5 * weights, "scale=2.5 does not multiply the weights by 2.5")
    scaled = [2.5 * gradient for gradient in published.gradients("trunk")]
    _close(larger.gradients("trunk"), scaled, "scale=2.5 does not multiply the gradient by 2.5")
    total = published.balancer.rule.total(len(TASKS))
    for scale, wanted in (("sum", float(len(TASKS))), ("mean", 1.0)):
        applied = take(scale)[1]
        if total is None:
            _identical(applied, weights, f"scale={scale!r} changes weights whose total is part of the method")
        else:
            sentence = (
                f"scale={scale!r} makes the weights sum to {float(applied.sum()):.4g}, not {wanted:.0f}; see total"
            )
            _close(applied.sum(), torch.tensor(wanted), sentence)


def _check_ways(rule: Factory, options: Mapping[str, Any]) -> None:
    fast = Training(rule, options)
    others: dict[str, tuple[Training, dict[str, Any]]] = {
        'engine="reference"': (Training(rule, options, engine="reference"), {}),
        "at=z": (Training(rule, options), {"at": True}),
        "the scalar form": (Training(rule, options), {"scalar": True}),
    }
    for number in range(3):
        wanted = fast.step(number).weights
        for way, (other, how) in others.items():
            _close(other.step(number, **how).weights, wanted, f"{way} gives other weights")
            _close(other.gradients("trunk"), fast.gradients("trunk"), f"{way} gives another gradient")


Check = Callable[[Factory, Mapping[str, Any]], None]
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
