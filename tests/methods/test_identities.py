"""What each paper claims about its own rule, checked on random gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import direction, observe, rule_of, start, weights_of

some = settings(max_examples=20, deadline=None)
seeds, sizes = st.integers(0, 10_000), st.integers(2, 8)


def draw(seed, tasks, spread=1.0):
    """Task gradients in general position, with lengths over `spread` decades."""
    generator = torch.Generator().manual_seed(seed)
    lengths = 10 ** (spread * torch.rand(tasks, 1, generator=generator))
    return lengths * torch.randn(tasks, 4 * tasks, generator=generator)


@some
@given(seeds, sizes)
def test_mgda_is_optimal_and_decreases_every_loss(seed, tasks):
    gradients = draw(seed, tasks)
    weights = weights_of("mgda", gradients)
    step = direction(weights, gradients).double()
    products = gradients.double() @ step
    assert (products >= step @ step * (1 - 1e-4)).all()


def test_mgda_puts_all_weight_on_the_smaller_gradient():
    """He et al. 2024, Sec. 3.3: when the larger one's projection on the smaller is longer than the smaller itself."""
    small, large = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])
    assert (large @ small) / small.norm() > small.norm()
    assert weights_of("mgda", torch.stack((small, large))).tolist() == [1, 0]
    assert weights_of("mgda", torch.stack((large, small))).tolist() == [0, 1]
    assert weights_of("mgda", torch.stack((small, torch.tensor([0.5, 4.0])))).min() > 0


@some
@given(seeds, sizes)
def test_imtl_has_equal_projections(seed, tasks):
    gradients = draw(seed, tasks)
    weights = weights_of("imtl", gradients)
    assert weights.sum() == pytest.approx(1, abs=1e-4)
    step = direction(weights, gradients)
    projections = (gradients / gradients.norm(dim=1, keepdim=True)) @ step
    assert (projections - projections.mean()).abs().max() <= 1e-3 * step.norm()


@some
@given(seeds, st.floats(0.01, 100.0))
def test_imtl_bisects_two_gradients_whatever_their_length(seed, length):
    pair = torch.randn(2, 5, generator=torch.Generator().manual_seed(seed))
    step = direction(weights_of("imtl", pair * torch.tensor([[1.0], [length]])), pair * torch.tensor([[1.0], [length]]))
    cosines = torch.cosine_similarity(pair, step[None])
    assert cosines[0] == pytest.approx(cosines[1].item(), abs=1e-3)


@some
@given(seeds, sizes)
def test_nash_solves_the_bargaining_equation(seed, tasks):
    gradients = draw(seed, tasks).double()
    a = weights_of("nash", gradients.float(), max_norm=None).double()
    gram = gradients @ gradients.T
    torch.testing.assert_close(a * (gram @ a), torch.ones_like(a), atol=1e-3, rtol=0)
    assert direction(a.float(), gradients).square().sum() == pytest.approx(tasks, rel=1e-3)


@some
@given(seeds, sizes)
def test_nash_clips_the_length_of_the_step(seed, tasks):
    gradients = draw(seed, tasks)
    assert direction(weights_of("nash", gradients), gradients).norm() == pytest.approx(1, rel=1e-3)


@some
@given(seeds, sizes)
def test_cagrad_without_radius_is_the_mean(seed, tasks):
    weights = weights_of("cagrad", draw(seed, tasks), c=0.0)
    assert weights.tolist() == pytest.approx([1 / tasks] * tasks, rel=1e-5)


@some
@given(seeds, sizes)
def test_cagrad_improves_the_worst_task_more_than_the_mean_does(seed, tasks):
    gradients = draw(seed, tasks)
    step = direction(weights_of("cagrad", gradients, rescale=0), gradients)
    mean = gradients.mean(0)
    assert (gradients @ step).min() >= (gradients @ mean).min() - 1e-4 * mean.norm()
    assert (step - mean).norm() == pytest.approx(0.4 * mean.norm().item(), rel=1e-2)


@some
@given(seeds, sizes)
def test_pcgrad_without_conflict_is_the_sum(seed, tasks):
    gradients = draw(seed, tasks).abs()
    assert weights_of("pcgrad", gradients, seed=seed).tolist() == [1] * tasks


@some
@given(seeds)
def test_pcgrad_leaves_no_conflict_between_two_tasks(seed):
    gradients = draw(seed, 2)
    step = direction(weights_of("pcgrad", gradients), gradients)
    assert (gradients @ step >= -1e-4 * gradients.norm(dim=1) * step.norm()).all()


@some
@given(seeds, sizes)
def test_pcgrad_is_the_loop_of_the_paper(seed, tasks):
    gradients = draw(seed, tasks).double()
    order = torch.rand(tasks, tasks, generator=torch.Generator().manual_seed(seed)).argsort(1)
    total = torch.zeros_like(gradients[0])
    for i in range(tasks):
        projected = gradients[i].clone()
        for j in order[i]:
            if j != i and projected @ gradients[j] < 0:
                projected -= projected @ gradients[j] / gradients[j].square().sum() * gradients[j]
        total += projected
    found = direction(weights_of("pcgrad", gradients.float(), seed=seed), gradients)
    torch.testing.assert_close(found.double(), total, atol=1e-3 * total.norm().item(), rtol=0)


@some
@given(seeds, sizes)
def test_gradnorm_leaves_equal_tasks_alone(seed, tasks):
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)))[0]
    rule = rule_of("gradnorm", tasks)
    state = start(rule, tasks)
    for loss in (2.0, 1.5, 0.3):
        decision = rule.update(state, observe(3 * rotation[:tasks], [loss] * tasks))
        state = decision.state
        assert decision.weights.tolist() == pytest.approx([1] * tasks, rel=1e-5)


@some
@given(seeds, sizes)
def test_gradnorm_weights_are_positive_and_sum_to_the_number_of_tasks(seed, tasks):
    rule = rule_of("gradnorm", tasks)
    state = start(rule, tasks)
    for step in range(5):
        decision = rule.update(state, observe(draw(seed + step, tasks, 3.0), torch.rand(tasks)))
        state = decision.state
        assert (decision.weights > 0).all()
        assert decision.weights.sum() == pytest.approx(tasks, rel=1e-4)


@some
@given(seeds, sizes)
def test_groupdro_with_equal_losses_is_uniform(seed, tasks):
    rule = rule_of("groupdro", tasks, step_size=1.0)
    state = start(rule, tasks)
    for step in range(5):
        decision = rule.update(state, observe(draw(seed + step, tasks), [0.7] * tasks))
        state = decision.state
    assert decision.weights.tolist() == pytest.approx([1 / tasks] * tasks)


@some
@given(seeds, sizes)
def test_hybrid_steps_along_imtl(seed, tasks):
    """Equal projections do not depend on the lengths, so the scales only set the length of the step."""
    gradients, rule = draw(seed, tasks), rule_of("imtl_hybrid", tasks)
    state = start(rule, tasks)
    for _ in range(3):
        decision = rule.update(state, observe(gradients, torch.rand(tasks) * 4))
        state = decision.state
    plain = direction(weights_of("imtl", gradients), gradients)
    cosine = torch.cosine_similarity(direction(decision.weights, gradients), plain, dim=0)
    assert cosine.abs() == pytest.approx(1, abs=1e-3)


@some
@given(seeds, sizes)
def test_graddrop_never_lets_opposite_signs_of_a_feature_through(seed, tasks):
    gradients = draw(seed, tasks)
    decision = rule_of("graddrop", tasks).update({}, observe(gradients, seed=seed))
    passed = torch.cat([gate.reshape(1, -1).expand(1, gradients.shape[1]) for (gate,) in decision.gates]) * gradients
    assert ((passed >= 0).all(0) | (passed <= 0).all(0)).all()
