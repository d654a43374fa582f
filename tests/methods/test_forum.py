"""FORUM against its defining equations, and on a problem whose solution is known."""

import pytest
import torch
from observing import observe, rule_of, start
from torch import nn

import excessmtl

RHO, ETA = 0.3, 0.05
VALIDATION = ["task3", "task4"]
"""Of five losses; the other three are training losses."""


def first_step(gradients):
    """lambda, nu, the length of q's gradient, and the state after the first step, in which lambda is the minimiser."""
    rule = rule_of("forum", 5, validation=VALIDATION, rho=RHO, inner_step=ETA)
    state = start(rule, 5, gradients.shape[1])
    state["logits"][:3] = torch.tensor([0.5, -0.2, 0.1])
    decision = rule.update(state, observe(gradients))
    s = state["logits"][:3].softmax(0)
    nu = decision.weights[:3] / s
    torch.testing.assert_close(nu, nu.mean().expand(3))  # the training losses keep the weights s among them
    return decision.weights[3:].double(), nu.mean().double(), s.double(), decision.state


def levels(gradients, s):
    """The gradients of F_1, F_2 and of q, by the parameters and by alpha (side by side)."""
    training, validation = gradients[:3].double(), gradients[3:].double()
    f = s @ training
    fall = ETA * training @ f  # l_j(omega) - l_j(omega~), first order
    q = torch.cat((f, s * (fall - s @ fall)))
    return torch.cat((validation, torch.zeros(2, 3)), 1), q


@pytest.mark.parametrize("seed", range(8))
def test_lambda_is_on_the_simplex_and_minimises_and_q_goes_down(seed):
    gradients = torch.randn(5, 6, generator=torch.Generator().manual_seed(seed)) * (4.0 if seed % 2 else 1.0)
    lambdas, nu, s, state = first_step(gradients)
    upper, q = levels(gradients, s)
    assert (lambdas >= 0).all()
    assert lambdas.sum() == pytest.approx(1, abs=1e-6)

    def at(weights):
        """d, nu and what is minimised, for rows of lambda."""
        combined = weights @ upper
        multiplier = (RHO - combined @ q / q.square().sum()).clamp(min=0)
        d = combined + multiplier[:, None] * q
        return d, multiplier, d.square().sum(1) / 2 - multiplier * RHO * q.square().sum()

    (d,), (expected,), (value,) = at(lambdas[None])
    assert nu == pytest.approx(float(expected), rel=1e-4, abs=1e-6)
    assert d @ q >= RHO * q.square().sum() * (1 - 1e-5)
    first = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    assert value <= at(torch.stack((first, 1 - first), 1))[2].min() + 1e-6
    torch.testing.assert_close(state["adam_first"][:3].double(), 0.1 * nu * q[6:], rtol=1e-4, atol=1e-7)
    assert not state["logits"][3:].any()


def test_some_steps_need_no_push_along_q_and_others_do():
    pushed = [first_step(torch.randn(5, 6, generator=torch.Generator().manual_seed(seed)))[1] > 0 for seed in range(20)]
    assert any(pushed)
    assert not all(pushed)


def test_the_fall_of_the_training_losses_is_that_of_small_inner_steps():
    """grad q by alpha against losses computed again after five steps, for a small eta."""
    torch.manual_seed(0)
    targets, omega = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    curved = torch.randn(3, 4, 4, dtype=torch.float64)

    def losses(point):
        return ((curved @ (point - targets)[..., None]).squeeze(-1) ** 2).sum(1)

    s = torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64).softmax(0)
    inner, eta = omega.clone(), 1e-5
    for _ in range(5):
        inner = inner - eta * s @ torch.autograd.functional.jacobian(losses, inner)
    fall = losses(omega) - losses(inner)
    gradients = torch.autograd.functional.jacobian(losses, omega)
    rule = rule_of("forum", 4, validation=["task3"], inner_step=5 * eta)
    state = start(rule, 4, 4)
    state["logits"][:3] = torch.tensor([0.5, -0.2, 0.1])
    decision = rule.update(state, observe(torch.cat((gradients, -gradients[:1]))))
    nu = decision.weights[0].double() / s[0]
    expected = 0.1 * nu * s * (fall - s @ fall)
    assert nu > 0
    torch.testing.assert_close(decision.state["adam_first"][:3].double(), expected, rtol=1e-2, atol=0)


def test_the_bilevel_solution_of_a_problem_where_it_is_known():
    """Training losses |omega - a_j|^2 with a = (0, 0), (1, 0): minima of their mixtures lie on the segment between.

    On it both validation losses, |omega - (0.3, 1)|^2 and |omega - (0.3, -1)|^2, are smallest at (0.3, 0): s is
    (0.7, 0.3). Without the lower level every point between (0.3, 1) and (0.3, -1) is Pareto optimal. Steps must become
    shorter: how near the segment the model stays is in proportion to them.
    """
    model = nn.ParameterList([nn.Parameter(torch.tensor([0.9, 0.5]))])
    tasks = {"a": (0.0, 0.0), "b": (1.0, 0.0), "a_val": (0.3, 1.0), "b_val": (0.3, -1.0)}
    balancer = excessmtl.create(
        "forum", tasks=list(tasks), shared=model, validation=["a_val", "b_val"], step_size=0.02, rho=0.5
    )
    for step in range(120):
        model.zero_grad()
        balancer.backward({task: (model[0] - torch.tensor(point)).square().sum() for task, point in tasks.items()})
        with torch.no_grad():
            model[0] -= 0.1 / (1 + step / 20) * model[0].grad
    assert model[0].tolist() == pytest.approx([0.3, 0.0], abs=0.02)
    assert balancer.state["logits"][:2].softmax(0).tolist() == pytest.approx([0.7, 0.3], abs=0.02)


def test_a_training_loss_may_come_and_go_and_a_validation_loss_is_named_by_an_option():
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


def test_batches_with_one_level_alone():
    rule = rule_of("forum", 4, validation=["task2", "task3"], rho=RHO)
    state, gradients = start(rule, 4, 4), torch.eye(4)
    training = rule.update(state, observe(gradients, ok=[True, True, False, False]))
    assert training.weights[:2].tolist() == pytest.approx([RHO / 2, RHO / 2])  # d = rho grad q
    assert torch.equal(training.state["simplex"], state["simplex"])
    validation = rule.update(state, observe(gradients, ok=[False, False, True, True]))
    assert validation.weights.tolist() == pytest.approx([0, 0, 0.5, 0.5])  # the shortest, as MGDA
    assert not validation.state["logits"].any()
