"""Rules alone: absent tasks, epochs that nobody ends. `check_rule` has what every rule owes, `oracles/` the numbers."""

from math import log

import pytest
import torch
from observing import observe, rule_of, start
from torch import nn

import excessmtl

STEPS = 3
UNEQUAL = [[1.0, 0.0], [0.0, 2.0]]
FREE = ("mgda", "imtl", "cagrad", "nash", "fairgrad", "upgrad", "dualproj", "aligned_mtl", "config", "krum")
"""No memory and no draws: the weights of a step are a function of its gradients alone."""


def draw(seed, tasks):
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(STEPS, tasks, 3 * tasks, generator=generator)
    lengths = 10 ** (2 * torch.rand(1, tasks, 1, generator=generator) - 1)
    return gradients * lengths, 3 * torch.rand(STEPS, tasks, generator=generator)


def run(name, gradients, losses, chosen, oks=None):
    rule = rule_of(name, len(chosen))
    state, decisions = start(rule, len(chosen), gradients.shape[-1]), []
    for step in range(len(gradients)):
        ok = None if oks is None else oks[step]
        decisions.append(rule.update(state, observe(gradients[step][chosen], losses[step][chosen], ok)))
        state = decisions[-1].state
    return decisions


@pytest.mark.parametrize("name", FREE)
def test_a_task_left_out_might_as_well_not_exist(name):
    for seed, (tasks, absent) in enumerate([(2, 0), (3, 1), (6, 5)]):
        gradients, losses = draw(seed, tasks)
        ok = torch.arange(tasks) != absent
        present = torch.arange(tasks)[ok]
        with_it = run(name, gradients[:1], losses, torch.arange(tasks), oks=[ok])[0].weights
        without = run(name, gradients[:1], losses, present)[0].weights
        torch.testing.assert_close(with_it[present], without, rtol=2e-3, atol=2e-4)
        assert with_it[absent] == 0


@pytest.mark.parametrize("tasks", [4, 6, 8])
def test_krum_takes_the_gradients_with_the_closest_neighbours(tasks):
    """The paper's score is of squared distances; TorchJD's is of the distances."""
    gradients = draw(0, tasks)[0][0].double()
    squares = torch.cdist(gradients, gradients).square().sort(1).values
    scores = squares[:, 1 : tasks - 2].sum(1)  # all but itself, one bad task and two more
    rule = rule_of("krum", tasks, selected=2)
    weights = rule.update(start(rule, tasks), observe(gradients)).weights
    torch.testing.assert_close(weights, (scores <= scores.sort().values[1]).float() / 2)


@pytest.mark.parametrize("name", ["groupdro", "imtl_l", "uw", "dtp", "dwa", "gradnorm"])
def test_a_task_left_out_does_not_touch_what_the_others_remember(name):
    gradients, losses = draw(0, 4)
    ok = torch.arange(4) != 1
    present = torch.arange(4)[ok]
    with_it = run(name, gradients, losses, torch.arange(4), oks=[ok] * STEPS)[-1].state
    without = run(name, gradients, losses, present)[-1].state
    for key in (key for key, value in without.items() if value.dim()):
        theirs, mine = with_it[key][present], without[key]
        if key == "scores":  # only differences count
            theirs, mine = theirs - theirs[0], mine - mine[0]
        torch.testing.assert_close(theirs, mine, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["uw", "imtl_l", "imtl_hybrid"])
def test_a_loss_that_stays_at_zero_for_long(name):
    rule = rule_of(name, 2, step_size=0.5)
    state, seen = start(rule, 2), observe(torch.eye(2), [0.0, 1.0])
    for _ in range(250):  # the logarithm of the scale goes to 125, where its exponential is infinite
        decision = rule.update(state, seen)
        state = decision.state
    assert decision.weights.isfinite().all()


def test_a_training_loss_of_forum_may_come_and_go_and_a_validation_loss_is_named_by_an_option():
    model = nn.Linear(2, 2)
    balancer = excessmtl.create("forum", tasks=["a", "b", "a_val"], shared=model, validation=["a_val"])
    losses = {task: (place + model(torch.ones(1, 2))).square().sum() for place, task in enumerate(balancer.tasks)}
    balancer.backward(losses)
    balancer.add_task("c")
    assert balancer.state["simplex"].tolist() == [0, 0, 1, 0]
    balancer.remove_task("b")
    assert balancer.tasks == ("a", "a_val", "c")
    assert balancer.state["simplex"].tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="validation must be a list of some"):
        balancer.remove_task("a_val")


def test_batches_with_one_level_of_forum_alone():
    rule = rule_of("forum", 4, validation=["task2", "task3"], rho=0.3)
    state, gradients = start(rule, 4, 4), torch.eye(4)
    training = rule.update(state, observe(gradients, ok=[True, True, False, False]))
    assert training.weights[:2].tolist() == pytest.approx([0.15, 0.15])  # d = rho grad q
    assert torch.equal(training.state["simplex"], state["simplex"])
    validation = rule.update(state, observe(gradients, ok=[False, False, True, True]))
    assert validation.weights.tolist() == pytest.approx([0, 0, 0.5, 0.5])  # the shortest, as MGDA
    assert not validation.state["logits"].any()


# ------------------------------------------------------------------ worked out on paper


def test_dtp_averages_the_indicators_and_falls_back_where_there_is_none():
    rule = rule_of("dtp", 2, rate=0.5)
    first = observe(UNEQUAL, [log(2), log(4)], metrics=torch.tensor([0.9, torch.nan]))
    state = rule.update(start(rule, 2), first).state
    assert state["average"].tolist() == pytest.approx([0.9, 0.25])  # exp(-loss) stands in
    decision = rule.update(state, observe(UNEQUAL, [1.0, 1.0], metrics=torch.tensor([0.5, 0.75])))
    # The first real indicator takes the place of what stood in for it.
    assert decision.weights.tolist() == pytest.approx([-0.3 * log(0.7), -0.25 * log(0.75)], rel=1e-5)
    third = rule.update(decision.state, observe(UNEQUAL, [5.0, 5.0]))
    assert third.weights.tolist() == pytest.approx(decision.weights.tolist(), rel=1e-6)


def test_dwa_by_windows_where_nobody_ends_an_epoch():
    rule = rule_of("dwa", 2, window=2)
    state, history = start(rule, 2), []
    for losses in ([3, 1], [1, 1], [1, 2], [1, 0], [9, 9], [9, 9]):
        decision = rule.update(state, observe(UNEQUAL, losses))
        state = decision.state
        history.append(decision.weights.tolist())
    assert history[:4] == [[1, 1]] * 4
    assert history[4] == pytest.approx((2 * torch.tensor([0.5 / 2, 1 / 2]).softmax(0)).tolist())


def test_dwa_forgets_windows_once_it_is_told_of_epochs():
    by_epochs, mixed = rule_of("dwa", 2, window=1000), rule_of("dwa", 2, window=2)
    torch.manual_seed(0)
    states = [start(by_epochs, 2), start(mixed, 2)]
    for epoch in range(4):
        for _ in range(7):
            seen = observe(UNEQUAL, torch.rand(2) + 0.5)
            decisions = [rule.update(state, seen) for rule, state in zip((by_epochs, mixed), states, strict=True)]
            states = [decision.state for decision in decisions]
            if epoch > 0:
                assert torch.equal(decisions[0].weights, decisions[1].weights)
        states = [rule.end_epoch(state) for rule, state in zip((by_epochs, mixed), states, strict=True)]


@pytest.mark.parametrize(("name", "epoch"), [("igb", {"base_epoch": 1}), ("stch", {"warmup_epochs": 1, "mu": 0.5})])
def test_losses_are_compared_with_those_of_an_early_window_where_nobody_ends_an_epoch(name, epoch):
    """Two steps are a window; the second has means 2 and 4; then the losses are 1 and 8."""
    rule = rule_of(name, 2, window=2, **epoch)
    state, history = start(rule, 2), []
    for losses in ([9, 9], [9, 9], [1, 4], [3, 4], [1, 8]):
        decision = rule.update(state, observe(UNEQUAL, losses))
        state = decision.state
        history.append(decision.weights * torch.tensor(losses))
    shares = torch.tensor([0.5, 2.0]).softmax(0) if name == "igb" else torch.tensor([0.25, 4]) / 4.25
    assert all(before.tolist() == pytest.approx([1, 1]) for before in history[:4])
    assert history[4].tolist() == pytest.approx((2 * shares).tolist())


@pytest.mark.parametrize("name", ["uw_so", "gls", "igb", "stch", "famo"])
def test_batches_with_one_task_at_a_time_are_weighed_by_the_losses_of_all(name):
    rule, losses = rule_of(name, 2), torch.tensor([0.5, 2.0])
    state = start(rule, 2)
    together = rule.update(state, observe(UNEQUAL, losses)).weights
    for task in (0, 1):
        decision = rule.update(state, observe(UNEQUAL, losses, ok=torch.arange(2) == task))
        state = decision.state
    torch.testing.assert_close(decision.weights, together)


def test_moml_without_normalisation():
    """Training losses theta_i at theta = 0, validation gradients twice 5 u and once v, with u.u = v.v = 2, u.v = -1.

    The shortest of the segment from 5 u to v has the share 7 / 62 of 5 u. The logits move against it by Adam's first
    step: by the rate, whatever the length.
    """
    theta, u, v = nn.Parameter(torch.zeros(3)), torch.tensor([1.0, -1.0, 0.0]), torch.tensor([0.0, 1.0, -1.0])
    balancer = excessmtl.create("moml", tasks=list("abc"), shared=[theta], step_size=0.01, normalize="none")
    validation = {"a": theta @ (5 * u) + 1, "b": theta @ v + 10, "c": theta @ (5 * u) + 1}
    balancer.backward({task: theta[i] * 1 for i, task in enumerate("abc")}, validation_losses=validation)
    direction = 7 / 62 * 5 * u + 55 / 62 * v
    torch.testing.assert_close(balancer.state["logits"], 0.01 * direction.sign(), rtol=1e-3, atol=0)
