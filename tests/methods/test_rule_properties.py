"""Rules alone: absent tasks, degenerate steps, random draws. `check_rule` has what else every rule owes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import FREE, GRADIENTS, VARIANTS, observe, rule_of, start

RANDOM = ("rlw", "pcgrad", "graddrop", "gradvac")
few = settings(max_examples=4, deadline=None)
seeds = st.integers(0, 10_000)
STEPS = 3


def draw(seed, tasks):
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(STEPS, tasks, 3 * tasks, generator=generator)
    lengths = 10 ** (2 * torch.rand(1, tasks, 1, generator=generator) - 1)
    return gradients * lengths, 3 * torch.rand(STEPS, tasks, generator=generator)


def fixed_draws(patch, tasks, chosen, seed):
    """Random numbers that belong to tasks: `chosen` says which of them this run has, in which order."""
    generator = torch.Generator().manual_seed(seed)
    keys, normals = torch.rand(tasks, tasks, generator=generator), torch.randn(tasks, generator=generator)
    real = torch.rand

    def rand(*size, generator, dtype=None, device=None):
        between_tasks = size == (len(chosen), len(chosen))
        return keys[chosen][:, chosen] if between_tasks else real(*size, generator=generator)

    patch.setattr(torch, "rand", rand)
    patch.setattr(torch, "randn", lambda size, generator, dtype=None, device=None: normals[chosen])


def run(name, options, gradients, losses, chosen, seed, oks=None):
    rule = rule_of(name, len(chosen), **options)
    state, decisions = start(rule, len(chosen), gradients.shape[-1]), []
    with pytest.MonkeyPatch.context() as patch:
        fixed_draws(patch, gradients.shape[1], chosen, seed)
        for step in range(len(gradients)):
            ok = None if oks is None else oks[step]
            seen = observe(gradients[step][chosen], losses[step][chosen], ok, seed=seed)
            decisions.append(rule.update(state, seen))
            state = decisions[-1].state
    return decisions


def same(first, second, places, others=slice(None)):
    torch.testing.assert_close(first[others], second[places], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("name", "options"), [v for v in VARIANTS if v[0] in RANDOM], ids=str)
@few
@given(seed=seeds, tasks=st.integers(1, 5), data=st.data())
def test_the_order_of_tasks_does_not_matter_where_draws_belong_to_tasks(name, options, seed, tasks, data):
    """`check_rule` cannot look at the order of tasks where random numbers are drawn in it."""
    order = torch.tensor(data.draw(st.permutations(range(tasks))))
    gradients, losses = draw(seed, tasks)
    forwards = run(name, options, gradients, losses, torch.arange(tasks), seed)
    mixed = run(name, options, gradients, losses, order, seed)
    for one, other in zip(forwards, mixed, strict=True):
        same(other.weights, one.weights, order)


@pytest.mark.parametrize("name", FREE)
@few
@given(seed=seeds, tasks=st.integers(2, 6), data=st.data())
def test_a_task_left_out_might_as_well_not_exist(name, seed, tasks, data):
    absent = data.draw(st.integers(0, tasks - 1))
    gradients, losses = draw(seed, tasks)
    ok = torch.arange(tasks) != absent
    present = torch.arange(tasks)[ok]
    with_it = run(name, {}, gradients[:1], losses, torch.arange(tasks), seed, oks=[ok])[0].weights
    without = run(name, {}, gradients[:1], losses, present, seed)[0].weights
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
    with_it = run(name, {}, gradients, losses, torch.arange(4), seed, oks=[ok] * STEPS)[-1].state
    without = run(name, {}, gradients, losses, present, seed)[-1].state
    for key in (key for key, value in without.items() if value.dim()):
        theirs, mine = with_it[key][present], without[key]
        if key == "scores":  # only differences count
            theirs, mine = theirs - theirs[0], mine - mine[0]
        same(theirs, mine, slice(None))


DEGENERATE = {
    "zero": torch.zeros(3, 4),
    "identical": torch.ones(3, 4),
    "opposed": torch.tensor([[1.0, 0, 0, 0], [-1, 0, 0, 0], [2, 0, 0, 0]]),
    "cancelling": torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [-1, -1, 0, 0]]),
    "one zero": torch.tensor([[0.0, 0, 0, 0], [1, 2, 0, 0], [0, 1, 1, 0]]),
    "tiny": 1e-18 * torch.eye(3, 4),
    "huge": 1e15 * torch.eye(3, 4),
    "unequal": torch.tensor([[1e-6, 0, 0, 0], [1, 1, 0, 0], [0, 1e4, 1e4, 0]]),
    "nearly parallel": torch.ones(3, 4) + 1e-6 * torch.eye(3, 4),
}
LOSSES = ([0.0, 0.0, 0.0], [1.0, 0.0, 1e4], [-1.0, 2.0, 1e-9], [1e15, 1.0, 1.0])
PRESENT = ([True] * 3, [True, True, False], [False, True, False], [False] * 3)


# Rules that see losses alone need to see them once.
KINDS = [(*variant, kind) for variant in VARIANTS for kind in DEGENERATE if variant[0] in GRADIENTS or kind == "zero"]


@pytest.mark.parametrize(("name", "options", "kind"), KINDS, ids=lambda value: str(value) if value else "")
def test_nothing_degenerate_gives_anything_but_numbers(name, options, kind):
    looks_at_losses = name not in FREE or "normalize" in options
    for losses in LOSSES if looks_at_losses else LOSSES[:1]:
        rule = rule_of(name, 3, **options)
        state = start(rule, 3, 4)
        for ok in PRESENT:
            decision = rule.update(state, observe(DEGENERATE[kind], losses, ok))
            state = decision.state
            assert decision.weights.isfinite().all(), (losses, ok, decision.weights)
            assert all(value.isfinite().all() for value in state.values()), (losses, ok, state)
            assert decision.direction is None or decision.direction.isfinite().all()
            if rule.simplex and any(ok):
                assert (decision.weights >= 0).all()
                assert decision.weights.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["uw", "imtl_l", "imtl_hybrid"])
def test_a_loss_that_stays_at_zero_for_long(name):
    rule = rule_of(name, 2)
    state, seen = start(rule, 2), observe(torch.eye(2), [0.0, 1.0])
    for _ in range(5000):
        decision = rule.update(state, seen)
        state = decision.state
    assert decision.weights.isfinite().all()


@few
@given(seed=seeds, scale=st.sampled_from([1e-4, 1e4]))
@pytest.mark.parametrize("name", ["imtl", "nash"])
def test_direction_is_free_of_the_scale_of_a_loss(name, seed, scale):
    gradients, losses = draw(seed, 4)
    scaled = gradients[0] * torch.tensor([[scale], [1.0], [1.0], [1.0]])
    steps = []
    for rows in (gradients[0], scaled):
        rule = rule_of(name, 4)
        steps.append(rule.update(start(rule, 4), observe(rows, losses[0])).weights.double() @ rows.double())
    assert torch.cosine_similarity(steps[0], steps[1], dim=0).abs() == pytest.approx(1, abs=1e-3)
