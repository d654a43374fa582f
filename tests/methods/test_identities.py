"""What papers claim about their rules, on random gradients of 2 to 8 tasks; the oracles have three tasks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import direction, observe, rule_of, start, weights_of

from excessmtl.solvers.conditioning import normalized
from excessmtl.solvers.nonnegative import without_conflict


def draw(seed, tasks, spread=1.0):
    """Task gradients in general position, with lengths over `spread` decades."""
    generator = torch.Generator().manual_seed(seed)
    lengths = 10 ** (spread * torch.rand(tasks, 1, generator=generator))
    return lengths * torch.randn(tasks, 4 * tasks, generator=generator)


def no_conflict(gradients, step):
    return (gradients @ step >= -1e-4 * gradients.norm(dim=1) * step.norm()).all()


def mgda_is_optimal_and_decreases_every_loss(gradients, seed):
    step = direction(weights_of("mgda", gradients), gradients).double()
    assert (gradients.double() @ step >= step @ step * (1 - 1e-4)).all()


def imtl_has_equal_projections(gradients, seed):
    weights = weights_of("imtl", gradients)
    assert weights.sum() == pytest.approx(1, abs=1e-4)
    step = direction(weights, gradients)
    projections = (gradients / gradients.norm(dim=1, keepdim=True)) @ step
    assert (projections - projections.mean()).abs().max() <= 1e-3 * step.norm()


def hybrid_steps_along_imtl(gradients, seed):
    """Equal projections do not depend on the lengths, so the scales only set the length of the step."""
    rule, losses = rule_of("imtl_hybrid", len(gradients)), 4 * torch.rand(len(gradients))
    state = rule.update(start(rule, len(gradients)), observe(gradients, losses)).state
    step = direction(rule.update(state, observe(gradients, losses)).weights, gradients)
    plain = direction(weights_of("imtl", gradients), gradients)
    assert torch.cosine_similarity(step, plain, dim=0).abs() == pytest.approx(1, abs=1e-3)


def nash_solves_the_bargaining_equation_and_clips_the_step(gradients, seed):
    a = weights_of("nash", gradients, max_norm=None).double()
    gram = gradients.double() @ gradients.double().T
    torch.testing.assert_close(a * (gram @ a), torch.ones_like(a), atol=1e-3, rtol=0)
    assert direction(weights_of("nash", gradients), gradients).norm() == pytest.approx(1, rel=1e-3)


def fairgrad_solves_its_equation(gradients, seed):
    alpha = (0.5, 1.0, 2.0)[seed % 3]
    w = weights_of("fairgrad", gradients, alpha=alpha, max_norm=None).double()
    progress = gradients.double() @ gradients.double().T @ w
    torch.testing.assert_close(progress * w ** (1 / alpha), torch.ones_like(w), atol=1e-3, rtol=0)


def cagrad_improves_the_worst_task_more_than_the_mean_does(gradients, seed):
    step, mean = direction(weights_of("cagrad", gradients, rescale=0), gradients), gradients.mean(0)
    assert (gradients @ step).min() >= (gradients @ mean).min() - 1e-4 * mean.norm()
    assert (step - mean).norm() == pytest.approx(0.4 * mean.norm().item(), rel=1e-2)
    assert weights_of("cagrad", gradients, c=0.0).tolist() == pytest.approx([1 / len(gradients)] * len(gradients))


def pcgrad_without_conflict_is_the_sum(gradients, seed):
    assert weights_of("pcgrad", gradients.abs(), seed=seed).tolist() == [1] * len(gradients)


def pcgrad_projects_in_the_order_of_its_draws(gradients, seed):
    gradients = gradients.double()
    tasks, total = len(gradients), torch.zeros_like(gradients[0])
    order = torch.rand(tasks, tasks, generator=torch.Generator().manual_seed(seed)).argsort(1)
    for i in range(tasks):
        projected = gradients[i].clone()
        for j in order[i]:
            if j != i and projected @ gradients[j] < 0:
                projected -= projected @ gradients[j] / gradients[j].square().sum() * gradients[j]
        total += projected
    found = direction(weights_of("pcgrad", gradients.float(), seed=seed), gradients)
    torch.testing.assert_close(found.double(), total, atol=1e-3 * total.norm().item(), rtol=0)


def no_task_gets_worse_by_upgrad_or_dualproj(gradients, seed):
    for name in ("upgrad", "dualproj"):
        assert no_conflict(gradients, direction(weights_of(name, gradients), gradients))
        equal = [1 / len(gradients)] * len(gradients)
        assert weights_of(name, gradients.abs()).tolist() == pytest.approx(equal, rel=1e-4)


def upgrad_projects_every_gradient_onto_the_dual_cone(gradients, seed):
    """v >= e_i, M v >= 0, and complementary: the conditions of argmin v'Mv over v >= e_i."""
    gradients = gradients[:4]
    everyone = torch.ones(len(gradients), dtype=torch.bool)
    cosines, _, active = normalized((gradients @ gradients.T).double(), everyone)
    wanted = torch.eye(len(gradients), dtype=torch.float64)
    found = without_conflict(cosines, wanted, active)
    slopes = found @ cosines
    assert (found >= wanted - 1e-9).all()
    assert (slopes >= -1e-5).all()
    assert ((found - wanted) * slopes).abs().max() < 1e-5


def aligned_gradients_are_orthogonal_and_equally_long(gradients, seed):
    """B G has one singular value; the step is the mean of its rows."""
    u, s, vh = torch.linalg.svd(gradients.double(), full_matrices=False)
    found = direction(weights_of("aligned_mtl", gradients), gradients).double()
    torch.testing.assert_close(found, (s.min() * u @ vh).mean(0), atol=1e-3 * found.norm().item(), rtol=0)


def config_has_one_angle_with_all_and_the_length_of_all_projections(gradients, seed):
    step = direction(weights_of("config", gradients), gradients)
    cosines = torch.cosine_similarity(gradients, step[None])
    assert cosines.max() - cosines.min() < 1e-3
    assert step.norm() == pytest.approx((gradients @ (step / step.norm())).sum().item(), rel=1e-3)


def pcd_follows_the_primary_task_and_every_other_makes_progress(gradients, seed):
    step = direction(weights_of("pcd", gradients, tau=0.1), gradients)
    assert step.norm() == pytest.approx(gradients[0].norm().item(), rel=1e-3)
    assert (torch.cosine_similarity(gradients[1:], step[None]) > 0).all()


def krum_takes_the_gradients_with_the_closest_neighbours(gradients, seed):
    gradients, tasks = draw(seed, 4 + seed % 5, 0.3), 4 + seed % 5
    squares = torch.cdist(gradients.double(), gradients.double()).square().sort(1).values
    scores = squares[:, 1 : tasks - 2].sum(1)  # all but itself, one bad task and two more
    expected = (scores <= scores.sort().values[1]).float() / 2
    torch.testing.assert_close(weights_of("krum", gradients, selected=2), expected)


def sdmgrad_with_no_pull_ends_at_mgda(gradients, seed):
    gradients = draw(seed, len(gradients), 0.3)
    rule = rule_of("sdmgrad", len(gradients), pull=0.0, iterations=100)
    state = start(rule, len(gradients))
    for _ in range(3):
        decision = rule.update(state, observe(gradients))
        state = decision.state
    best = direction(weights_of("mgda", gradients), gradients).norm()
    assert direction(decision.weights, gradients).norm() <= 1.05 * best


def db_mtl_brings_all_tasks_to_the_longest(gradients, seed):
    losses, rule = torch.rand(len(gradients)) + 0.1, rule_of("db_mtl", len(gradients), decay=0.0)
    decision = rule.update(start(rule, len(gradients), gradients.shape[1]), observe(gradients, losses))
    relative = gradients / losses[:, None]
    lengths = relative.norm(dim=1, keepdim=True)
    torch.testing.assert_close(decision.direction, (relative / lengths * lengths.max()).sum(0), rtol=1e-3, atol=1e-3)


def graddrop_never_lets_opposite_signs_of_a_feature_through(gradients, seed):
    decision = rule_of("graddrop", len(gradients)).update({}, observe(gradients, seed=seed))
    passed = torch.cat([gate.reshape(1, -1).expand(1, gradients.shape[1]) for (gate,) in decision.gates]) * gradients
    assert ((passed >= 0).all(0) | (passed <= 0).all(0)).all()


CLAIMS = [
    mgda_is_optimal_and_decreases_every_loss,
    imtl_has_equal_projections,
    hybrid_steps_along_imtl,
    nash_solves_the_bargaining_equation_and_clips_the_step,
    fairgrad_solves_its_equation,
    cagrad_improves_the_worst_task_more_than_the_mean_does,
    pcgrad_without_conflict_is_the_sum,
    pcgrad_projects_in_the_order_of_its_draws,
    no_task_gets_worse_by_upgrad_or_dualproj,
    upgrad_projects_every_gradient_onto_the_dual_cone,
    aligned_gradients_are_orthogonal_and_equally_long,
    config_has_one_angle_with_all_and_the_length_of_all_projections,
    pcd_follows_the_primary_task_and_every_other_makes_progress,
    krum_takes_the_gradients_with_the_closest_neighbours,
    sdmgrad_with_no_pull_ends_at_mgda,
    db_mtl_brings_all_tasks_to_the_longest,
    graddrop_never_lets_opposite_signs_of_a_feature_through,
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), tasks=st.integers(2, 8))
def test_the_claim_holds(claim, seed, tasks):
    claim(draw(seed, tasks), seed)


def test_mgda_puts_all_weight_on_the_smaller_gradient():
    """He et al. 2024, Sec. 3.3: when the larger one's projection on the smaller is longer than the smaller itself."""
    small, large = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])
    assert (large @ small) / small.norm() > small.norm()
    assert weights_of("mgda", torch.stack((small, large))).tolist() == [1, 0]
    assert weights_of("mgda", torch.stack((large, small))).tolist() == [0, 1]
    assert weights_of("mgda", torch.stack((small, torch.tensor([0.5, 4.0])))).min() > 0
