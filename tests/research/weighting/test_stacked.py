"""Stacked runs train as each would alone, with the weights that the library gives."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

import excessmtl
from research.weighting import worlds
from research.weighting.stacked import StackedTraining
from research.weighting.tried import IMTL, SHIPPED, UNIFORM

EPOCHS = 4
CASE = 1


def linear(layer, run):
    weight, bias = (parameter[run].detach().clone() for parameter in layer)
    made = nn.Linear(*weight.shape)
    made.weight, made.bias = nn.Parameter(weight.T.contiguous()), nn.Parameter(bias[0])
    return made


@pytest.fixture(scope="module")
def cases():
    loaded = worlds.load("teacher-narrow", [0.0, 1.0], [100])
    return replace(loaded, recipe=replace(loaded.recipe, weight_decay=1e-2))


@pytest.mark.parametrize(("place", "method"), [(0, "uniform"), (2, "imtl")])
def test_a_stacked_run_is_the_run_that_a_balancer_trains(cases, place, method):
    # The trunk is narrower than the adapter, so that neither the bench nor the library projects the representation.
    training = StackedTraining(cases, [UNIFORM, SHIPPED, IMTL], "cpu")
    run = place * len(cases.cases) + CASE
    trunk = nn.Sequential(*(part for layer in training.networks.trunk for part in (linear(layer, run), nn.ReLU())))
    tasks = [task.name for task in cases.tasks]
    heads = nn.ModuleDict({task: linear(head, run) for task, head in zip(tasks, training.networks.heads, strict=True)})
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], cases.recipe.learning_rate)
    optimizer.param_groups[0]["weight_decay"] = cases.recipe.weight_decay
    options = {"probe": "representation"} if method == "imtl" else {}
    balancer = excessmtl.create(method, tasks=tasks, shared=trunk, heads="unweighted", **options)
    seen = []
    for rows in itertools.chain(*(training.batches() for _ in range(EPOCHS))):
        losses, weights = training.step(rows)
        batch = rows[CASE]
        z = trunk(cases.inputs[CASE][batch])
        own = {task: nn.functional.mse_loss(heads[task](z), cases.targets[task][CASE][batch]) for task in tasks}
        optimizer.zero_grad()
        step = balancer.backward(own)
        optimizer.step()
        torch.testing.assert_close(losses[run], step.losses, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights[run] * len(tasks), step.weights, rtol=1e-3, atol=1e-4)
        seen.append(step.losses.sum().item())
    assert sum(seen[-10:]) < 0.9 * sum(seen[:10])  # something was learned, or the test would say little


def test_candidates_begin_alike_and_cases_do_not(cases):
    networks = StackedTraining(cases, [UNIFORM, SHIPPED], "cpu").networks
    for parameter in networks.parameters():
        torch.testing.assert_close(parameter[:2], parameter[2:])
        assert not torch.equal(parameter[0], parameter[1])


def test_every_case_sees_each_sample_at_most_once_an_epoch(cases):
    training = StackedTraining(cases, [UNIFORM], "cpu")
    rows = torch.cat(training.batches(), 1)
    size = cases.recipe.batch_size
    assert rows.shape == (2, cases.inputs.shape[1] // size * size)
    assert all(len(set(own.tolist())) == len(own) for own in rows)
    assert not torch.equal(rows[0], rows[1])


def test_scores_are_those_of_the_test_samples():
    cases = worlds.load("teacher-memorise", [0.0], [100], epochs_factor=0.1)
    training = StackedTraining(cases, [UNIFORM], "cpu")
    outcome = training.run()
    assert outcome.scores.shape == outcome.weights.shape == (1, 1, len(cases.tasks))
    z = training.networks.represent(cases.test_inputs)
    weight, bias = training.networks.heads[0]
    right = (z @ weight + bias).argmax(-1) == cases.test_targets["task_1"]
    assert outcome.scores[0, 0, 0].item() == pytest.approx(right.float().mean().item())
    assert outcome.scores.min() > 0.3  # five classes: chance is 0.2


def test_noise_is_in_the_noisy_tasks_of_the_noisy_cases_alone(cases):
    clean, noisy = (
        {task: not torch.equal(values[0], values[1]) for task, values in part.items()}
        for part in (cases.test_targets, cases.targets)
    )
    assert not any(clean.values())
    assert [task for task, differs in noisy.items() if differs] == list(cases.noisy_tasks)
