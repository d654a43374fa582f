"""In evaluation mode a balancer weighs losses and learns nothing; in inference mode it says what to do."""

import copy

import pytest
import torch
from torch import nn

import excessmtl
from choices import PAPER, ROBUST, UNIFORM, Method, both_forms, rule_of
from models import DEVICE, TASKS, batch, losses_of
from steps import assert_same, gradients, started, trained

each_method = pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM, Method("graddrop")], ids=str)


def evaluated(method, **options):
    model, balancer = started(method, **options)
    last = trained(balancer, model, 3)[-1]
    model.zero_grad()
    model.eval()
    balancer.eval()
    return model, balancer, last


@pytest.mark.parametrize("gradient", [False, True], ids=["no_grad", "with gradients"])
@each_method
def test_it_is_the_weighted_sum_and_changes_nothing(method, gradient):
    model, balancer, last = evaluated(method)
    before, steps = copy.deepcopy(balancer.state_dict()), balancer.steps
    x, targets = batch()
    with torch.set_grad_enabled(gradient):
        losses = losses_of(model(x), targets)
        value = balancer(losses)
    if rule_of(method).gated:
        assert value.isfinite()
    else:
        wanted = sum(w * losses[task].detach() for task, w in zip(TASKS, last.weights, strict=True))
        torch.testing.assert_close(value.detach(), wanted)
    assert value.requires_grad is gradient
    if gradient and not rule_of(method).gated:
        value.backward()
        computed = gradients(model)
        model.zero_grad()
        losses = losses_of(model(x), targets)
        sum(w * losses[task] for task, w in zip(TASKS, last.weights, strict=True)).backward()
        torch.testing.assert_close(computed, gradients(model))
    assert_same(before, balancer.state_dict())
    assert balancer.steps == steps
    assert balancer.last_step is last


def test_tasks_without_labels_add_nothing_and_bad_numbers_are_shown():
    model, balancer, last = evaluated(UNIFORM)
    x, targets = batch()
    with torch.no_grad():
        losses = losses_of(model(x), targets)
        nobody = torch.zeros(len(x), dtype=torch.bool, device=DEVICE)
        wanted = last.weights[0] * losses["a"]
        torch.testing.assert_close(balancer({"a": losses["a"], "b": None}), wanted)
        bad = losses["b"] * torch.nan
        torch.testing.assert_close(balancer({"a": losses["a"], "b": bad}, mask={"b": nobody}), wanted)
        assert balancer({"a": losses["a"], "b": bad}).isnan()


def test_backward_trains_in_either_mode():
    """Networks are fine-tuned in evaluation mode too, to leave their batch norm alone."""
    model, balancer, _ = evaluated(ROBUST)
    balancer.backward(model.losses())
    assert balancer.steps == 4
    assert gradients(model)["trunk.0.weight"].any()


def test_without_gradients_in_training_mode_the_error_names_the_mode():
    model, balancer = started(ROBUST)
    with torch.no_grad(), pytest.raises(ValueError, match=r"call balancer\.eval\(\)"):
        balancer(model.losses())
    balancer.eval()
    with pytest.raises(ValueError, match="unknown task 'd'"):
        balancer({"d": torch.ones(())})


# ------------------------------------------------------------------ torch.inference_mode


@pytest.mark.parametrize("method", ["excess", "mgda", "groupdro", "uw"])
def test_a_balancer_made_in_inference_mode_takes_steps(method):
    encoder, heads = nn.Linear(4, 6), nn.ModuleDict({"a": nn.Linear(6, 1), "b": nn.Linear(6, 1)})
    with torch.inference_mode():
        balancer = excessmtl.create(method, tasks=list(heads), shared=encoder)
    for _ in range(2):
        z = encoder(torch.randn(8, 4))
        balancer.backward({task: head(z).square().mean() for task, head in heads.items()})
    assert balancer.steps == 2
    assert encoder.weight.grad is not None


@pytest.mark.parametrize("matrix", [False, True], ids=["dict", "matrix"])
@both_forms
@pytest.mark.parametrize("method", ["excess", "mgda", "uniform"])
def test_a_step_in_inference_mode_is_refused_in_one_sentence(method, scalar, matrix):
    encoder, head = nn.Linear(4, 6), nn.Linear(6, 2)
    balancer = excessmtl.create(method, tasks=["a", "b"], shared=encoder)
    for forward_inside in (False, True):
        with torch.inference_mode(forward_inside):
            squares = head(encoder(torch.randn(8, 4))).square()
            losses = squares if matrix else dict(zip("ab", squares.mean(0).unbind(), strict=True))
        with torch.inference_mode(), pytest.raises(ValueError, match=r"torch\.inference_mode\(\)"):
            balancer(losses) if scalar else balancer.backward(losses)
    balancer.eval()
    with torch.inference_mode():
        assert balancer(losses) > 0
