"""Rules alone: what an absent task is to the others. `check_rule` has what every rule owes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import observe, rule_of, start

few = settings(max_examples=4, deadline=None)
seeds = st.integers(0, 10_000)
STEPS = 3
FREE = ("mgda", "imtl", "cagrad", "nash", "fairgrad", "upgrad", "dualproj", "aligned_mtl", "config", "krum")
"""No memory and no draws: the weights of a step are a function of its gradients alone."""


def draw(seed, tasks):
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(STEPS, tasks, 3 * tasks, generator=generator)
    lengths = 10 ** (2 * torch.rand(1, tasks, 1, generator=generator) - 1)
    return gradients * lengths, 3 * torch.rand(STEPS, tasks, generator=generator)


def run(name, gradients, losses, chosen, seed, oks=None):
    rule = rule_of(name, len(chosen))
    state, decisions = start(rule, len(chosen), gradients.shape[-1]), []
    for step in range(len(gradients)):
        ok = None if oks is None else oks[step]
        seen = observe(gradients[step][chosen], losses[step][chosen], ok, seed=seed)
        decisions.append(rule.update(state, seen))
        state = decisions[-1].state
    return decisions


def same(first, second, places, others=slice(None)):
    torch.testing.assert_close(first[others], second[places], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", FREE)
@few
@given(seed=seeds, tasks=st.integers(2, 6), data=st.data())
def test_a_task_left_out_might_as_well_not_exist(name, seed, tasks, data):
    absent = data.draw(st.integers(0, tasks - 1))
    gradients, losses = draw(seed, tasks)
    ok = torch.arange(tasks) != absent
    present = torch.arange(tasks)[ok]
    with_it = run(name, gradients[:1], losses, torch.arange(tasks), seed, oks=[ok])[0].weights
    without = run(name, gradients[:1], losses, present, seed)[0].weights
    same(with_it, without, slice(None), present)
    assert with_it[absent] == 0


@pytest.mark.parametrize("name", ["groupdro", "imtl_l", "uw", "dtp", "dwa", "gradnorm"])
@few
@given(seed=seeds, data=st.data())
def test_a_task_left_out_does_not_touch_what_the_others_remember(name, seed, data):
    absent = data.draw(st.integers(0, 3))
    gradients, losses = draw(seed, 4)
    ok = torch.arange(4) != absent
    present = torch.arange(4)[ok]
    with_it = run(name, gradients, losses, torch.arange(4), seed, oks=[ok] * STEPS)[-1].state
    without = run(name, gradients, losses, present, seed)[-1].state
    for key in (key for key, value in without.items() if value.dim()):
        theirs, mine = with_it[key][present], without[key]
        if key == "scores":  # only differences count
            theirs, mine = theirs - theirs[0], mine - mine[0]
        same(theirs, mine, slice(None))


@pytest.mark.parametrize("name", ["uw", "imtl_l", "imtl_hybrid"])
def test_a_loss_that_stays_at_zero_for_long(name):
    rule = rule_of(name, 2)
    state, seen = start(rule, 2), observe(torch.eye(2), [0.0, 1.0])
    for _ in range(5000):
        decision = rule.update(state, seen)
        state = decision.state
    assert decision.weights.isfinite().all()
