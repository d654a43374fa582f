"""Labels with holes: the gradient of every task is that of its labelled entries alone, and always finite."""

from functools import partial
from math import prod

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, huber_loss, mse_loss

from excessmtl.losses import by_task
from models import BATCH, DEVICE, FEATURES, TASKS, WIDTH

HOLES = torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]] * (BATCH // 4), dtype=torch.bool, device=DEVICE)
"""[batch, tasks]: the last task has no label at all."""


def predicted(*shape):
    """A model, and its outputs [batch, *shape] for a random batch."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, prod(shape))).to(DEVICE)
    return model, model(torch.randn(BATCH, FEATURES, device=DEVICE)).reshape(BATCH, *shape)


def gradients(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)


def assert_alone(found, wanted, model):
    """A loss, and the gradient that it has."""
    torch.testing.assert_close(found, wanted)
    for one, other in zip(gradients(found, model), gradients(wanted, model), strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)


def assert_nothing(loss, mask, model):
    assert loss == 0
    assert not mask.any()
    assert not any(gradient.any() for gradient in gradients(loss, model))


@pytest.mark.parametrize(
    "loss", [mse_loss, huber_loss, binary_cross_entropy_with_logits, partial(huber_loss, delta=0.1)]
)
def test_a_matrix_of_targets_with_nan(loss):
    model, outputs = predicted(3)
    targets = torch.rand(BATCH, 3, device=DEVICE).masked_fill(~HOLES, torch.nan)
    losses, mask = by_task(outputs, targets, TASKS, loss=loss)
    assert torch.equal(torch.stack(list(mask.values()), 1), HOLES)
    for i, task in enumerate(TASKS[:2]):
        rows = HOLES[:, i]
        assert_alone(losses[task], loss(outputs[rows, i], targets[rows, i]), model)
    assert_nothing(losses["c"], mask["c"], model)


@pytest.mark.parametrize("ignore", [-100, 255])
def test_a_matrix_of_classes_with_an_ignore_index(ignore):
    model, outputs = predicted(3, 4)
    targets = torch.randint(0, 4, (BATCH, 3), device=DEVICE).masked_fill(~HOLES, ignore)
    losses, mask = by_task(outputs, targets, TASKS, cross_entropy, ignore=ignore)
    for i, task in enumerate(TASKS[:2]):
        assert_alone(losses[task], cross_entropy(outputs[:, i], targets[:, i], ignore_index=ignore), model)
    assert_nothing(losses["c"], mask["c"], model)


def test_a_matrix_over_time():
    """A task's samples differ in how many of their positions are labelled: every position counts alike."""
    model, outputs = predicted(3, 5)
    labelled = (torch.rand(BATCH, 3, 5, device=DEVICE) < 0.6) & HOLES[..., None]
    targets = torch.randn(BATCH, 3, 5, device=DEVICE).masked_fill(~labelled, torch.nan)
    losses, mask = by_task(outputs, targets, TASKS)
    for i, task in enumerate(TASKS[:2]):
        entries = labelled[:, i]
        assert_alone(losses[task], mse_loss(outputs[:, i][entries], targets[:, i][entries]), model)
        assert torch.equal(mask[task], entries.any(1))
    assert_nothing(losses["c"], mask["c"], model)


def test_classes_of_tokens():
    model, outputs = predicted(3, 4, 5)  # classes before positions, as cross_entropy takes them
    targets = torch.randint(0, 4, (BATCH, 3, 5), device=DEVICE)
    targets[:, :, 3:] = -100
    targets[0] = -100
    losses, mask = by_task(outputs, targets, TASKS, cross_entropy)
    for i, task in enumerate(TASKS):
        assert_alone(losses[task], cross_entropy(outputs[:, i], targets[:, i]), model)
        assert mask[task].tolist() == [False] + [True] * (BATCH - 1)


def test_tasks_of_different_kinds():
    model, out = predicted(6)
    outputs = {"a": out[:, :3], "b": out[:, 3:4], "c": out[:, 4:]}
    targets = {"a": torch.randint(0, 3, (BATCH,), device=DEVICE), "b": torch.randn(BATCH, device=DEVICE), "c": None}
    targets["a"][:3], targets["b"][5:] = -100, torch.nan
    kinds = {"a": cross_entropy, "b": nn.MSELoss(reduction="none"), "c": mse_loss}
    losses, mask = by_task(outputs, targets, TASKS, loss=kinds)
    assert set(losses) == set(mask) == {"a", "b"}
    assert_alone(losses["a"], cross_entropy(outputs["a"][3:], targets["a"][3:]), model)
    assert_alone(losses["b"], mse_loss(outputs["b"][:5, 0], targets["b"][:5]), model)


def test_a_loss_that_reduces_over_a_label_of_several_entries():
    model, output = predicted(4)
    targets = torch.rand(BATCH, 4, device=DEVICE).softmax(-1)
    targets[2, 1] = torch.nan
    losses, mask = by_task({"a": output}, {"a": targets}, ["a"], cross_entropy)
    rows = torch.arange(BATCH, device=DEVICE) != 2
    assert_alone(losses["a"], cross_entropy(output[rows], targets[rows]), model)
    assert torch.equal(mask["a"], rows)


def test_half_precision_does_not_overflow():
    outputs = torch.full((4096, 1), 8.0, dtype=torch.float16)
    losses, _ = by_task(outputs, torch.zeros_like(outputs), ["a"])
    assert losses["a"] == 64


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"outputs": torch.zeros(4, 2)}, r"outputs must be \[batch, 3 tasks"),
        ({"targets": torch.zeros(4)}, r"targets must be \[batch, 3 tasks"),
        ({"targets": {"d": torch.zeros(4)}}, "targets names unknown task 'd'"),
        ({"targets": {}}, "targets has no task"),
        ({"loss": {"a": mse_loss}}, "loss has none for task 'b'"),
        ({"loss": nn.MSELoss()}, "reduction='none'"),
        ({"loss": lambda output, target: (output - target).square().mean()}, "one loss per entry"),
    ],
)
def test_what_is_refused(arguments, match):
    arguments = {"outputs": torch.zeros(4, 3), "targets": torch.zeros(4, 3), **arguments}
    with pytest.raises(ValueError, match=match):
        by_task(tasks=TASKS, **arguments)


def test_broadcasting_is_refused():
    outputs = {task: torch.zeros(4, 2) for task in TASKS}
    with pytest.raises(ValueError, match="one loss per entry"), pytest.warns(UserWarning, match="broadcasting"):
        by_task(outputs, torch.zeros(2, 3), TASKS)


@pytest.mark.parametrize(
    ("output", "target"), [((8, 1), (8, 2)), ((8, 1, 4), (8, 3, 4)), ((2,), (8, 2)), ((1, 2), (8, 2))]
)
@pytest.mark.parametrize("loss", [mse_loss, lambda output, target: (output - target).abs()], ids=["torch", "own"])
def test_outputs_that_would_be_broadcast_to_the_target_are_refused(output, target, loss):
    with pytest.raises(ValueError, match=r"outputs for task 'a' have shape .* would be broadcast to the target's"):
        by_task({"a": torch.zeros(output)}, {"a": torch.zeros(target)}, ["a"], loss)


def test_a_loss_may_take_several_outputs_for_an_entry():
    """As that of a normal distribution does, of a mean and a variance."""

    def likelihood(output, target):
        return 0.5 * ((output[:, :1] - target).square() / output[:, 1:].exp() + output[:, 1:])

    losses, _ = by_task({"a": torch.zeros(8, 2)}, {"a": torch.ones(8, 1)}, ["a"], likelihood)
    assert losses["a"] == 0.5
