"""What each paper claims about its own rule, checked on random gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import direction, observe, rule_of, start, weights_of

from excessmtl.solvers.conditioning import normalized
from excessmtl.solvers.nonnegative import without_conflict

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


@some
@given(seeds, sizes, st.sampled_from([0.5, 1.0, 2.0]))
def test_fairgrad_solves_its_equation(seed, tasks, alpha):
    gradients = draw(seed, tasks).double()
    w = weights_of("fairgrad", gradients.float(), alpha=alpha, max_norm=None).double()
    progress = gradients @ gradients.T @ w
    torch.testing.assert_close(progress * w ** (1 / alpha), torch.ones_like(w), atol=1e-3, rtol=0)


@some
@given(seeds, sizes, st.sampled_from(["upgrad", "dualproj"]))
def test_no_task_gets_worse(seed, tasks, name):
    gradients = draw(seed, tasks)
    step = direction(weights_of(name, gradients), gradients)
    assert (gradients @ step >= -1e-4 * gradients.norm(dim=1) * step.norm()).all()
    agreeing = gradients.abs()
    assert weights_of(name, agreeing).tolist() == pytest.approx([1 / tasks] * tasks, rel=1e-4)


@some
@given(seeds, st.integers(2, 4))
def test_upgrad_projects_every_gradient_onto_the_dual_cone(seed, tasks):
    """v >= e_i, M v >= 0, and complementary: the conditions of argmin v'Mv over v >= e_i."""
    gradients = draw(seed, tasks)
    cosines = (gradients @ gradients.T).double()
    cosines, _, active = normalized(cosines, torch.ones(tasks, dtype=torch.bool))
    wanted = torch.eye(tasks, dtype=torch.float64)
    found = without_conflict(cosines, wanted, active)
    slopes = found @ cosines
    assert (found >= wanted - 1e-9).all()
    assert (slopes >= -1e-5).all()
    assert ((found - wanted) * slopes).abs().max() < 1e-5


@some
@given(seeds, sizes)
def test_aligned_gradients_are_orthogonal_and_equally_long(seed, tasks):
    """B G has one singular value; the step is the mean of its rows."""
    gradients = draw(seed, tasks).double()
    u, s, vh = torch.linalg.svd(gradients, full_matrices=False)
    aligned = s.min() * u @ vh
    found = direction(weights_of("aligned_mtl", gradients.float()), gradients.float()).double()
    torch.testing.assert_close(found, aligned.mean(0), atol=1e-3 * found.norm().item(), rtol=0)


@some
@given(seeds, sizes)
def test_config_has_one_angle_with_all_and_the_length_of_all_projections(seed, tasks):
    gradients = draw(seed, tasks)
    step = direction(weights_of("config", gradients), gradients)
    cosines = torch.cosine_similarity(gradients, step[None])
    assert cosines.max() - cosines.min() < 1e-3
    assert step.norm() == pytest.approx((gradients @ (step / step.norm())).sum().item(), rel=1e-3)


@some
@given(seeds, sizes)
def test_pcd_follows_the_primary_task_and_every_other_makes_progress(seed, tasks):
    gradients = draw(seed, tasks)
    step = direction(weights_of("pcd", gradients, tau=0.1), gradients)
    assert step.norm() == pytest.approx(gradients[0].norm().item(), rel=1e-3)
    assert (torch.cosine_similarity(gradients[1:], step[None]) > 0).all()
    alone = gradients.clone()
    alone[1:] = gradients[:1] + 0.01 * gradients[1:]
    assert torch.cosine_similarity(direction(weights_of("pcd", alone), alone), alone[0], dim=0) > 0.999


@some
@given(seeds, sizes)
def test_sdmgrad_ends_where_its_problem_is_solved(seed, tasks):
    """With no pull it is MGDA: |sum w g| is no longer than the shortest by much."""
    gradients, rule = draw(seed, tasks, 0.3), rule_of("sdmgrad", tasks, pull=0.0, iterations=100)
    state = start(rule, tasks)
    for _ in range(3):
        decision = rule.update(state, observe(gradients))
        state = decision.state
    best = direction(weights_of("mgda", gradients), gradients).norm()
    assert direction(decision.weights, gradients).norm() <= 1.05 * best


def test_moco_tracks_the_gradients_and_steps_along_them():
    gradients = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    rule = rule_of("moco", 2, step_size=1e-6)
    state = start(rule, 2, 2)
    first = rule.update(state, observe(gradients))
    torch.testing.assert_close(first.direction, 0.5 * 0.5 * gradients.sum(0))
    second = rule.update(first.state, observe(gradients))
    tracked = 0.5 * gradients + 0.5 * 2**-0.5 * (gradients - 0.5 * gradients)
    torch.testing.assert_close(second.state["tracked"], tracked)
    torch.testing.assert_close(second.direction, 0.5 * tracked.sum(0), atol=1e-5, rtol=1e-5)
    long = rule_of("moco", 2, tracking=1.0, power=0.0, step_size=0.05)
    state = start(long, 2, 2)
    for _ in range(200):
        decision = long.update(state, observe(gradients))
        state = decision.state
    assert decision.weights.tolist() == pytest.approx([0.8, 0.2], abs=1e-3)  # MGDA


@some
@given(seeds, sizes)
def test_db_mtl_brings_all_tasks_to_the_longest(seed, tasks):
    gradients, losses = draw(seed, tasks), torch.rand(tasks) + 0.1
    rule = rule_of("db_mtl", tasks, decay=0.0)
    decision = rule.update(start(rule, tasks, gradients.shape[1]), observe(gradients, losses))
    relative = gradients / losses[:, None]
    lengths = relative.norm(dim=1, keepdim=True)
    torch.testing.assert_close(decision.direction, (relative / lengths * lengths.max()).sum(0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(decision.weights, 1 / losses)


def test_auto_lambda_raises_the_tasks_that_help_the_primary_one():
    rule = rule_of("auto_lambda", 2, primary=["task0"], step_size=0.01)
    seen = observe(torch.eye(2), cross=torch.tensor([[1.0, -2.0], [0.0, 5.0]]))
    assert rule.update(start(rule, 2), seen).weights.tolist() == pytest.approx([0.11, 0.09])
    assert rule.lookahead(start(rule, 2)).tolist() == pytest.approx([0.01, 0.01])


@some
@given(seeds, st.integers(4, 8))
def test_krum_takes_the_gradients_with_the_closest_neighbours(seed, tasks):
    gradients = draw(seed, tasks, 0.3)
    squares = torch.cdist(gradients.double(), gradients.double()).square().sort(1).values
    scores = squares[:, 1 : tasks - 2].sum(1)  # all but itself, one bad task and two more
    expected = (scores <= scores.sort().values[1]).float() / 2
    torch.testing.assert_close(weights_of("krum", gradients, selected=2), expected)
