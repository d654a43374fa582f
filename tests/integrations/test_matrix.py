"""A loss of two matrices [batch, tasks]: equal weights are the plain loss; holes in the labels."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy, l1_loss, mse_loss

import excessmtl
from excessmtl.integrations import MatrixLoss

TASKS = ["click", "like", "buy"]
X, Y = torch.rand(8, 5), (torch.rand(8, 3) > 0.5).long()


class Model(nn.Module):
    """Probabilities [batch, tasks]."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(8, 1), nn.Sigmoid()) for _ in TASKS)

    def forward(self, x):
        z = self.trunk(x)
        return torch.cat([head(z) for head in self.heads], 1)


def made(method="uniform", loss=binary_cross_entropy):
    model = Model()
    return model, MatrixLoss(excessmtl.create(method, tasks=TASKS, shared=model.trunk), loss, columns=model.heads)


def gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def in_one_call(criterion, outputs, targets):
    return criterion(outputs, targets, reduction="sum")


def column_by_column(criterion, outputs, targets):
    columns = [loss(outputs[:, i], targets[:, i]) for i, loss in enumerate(criterion.per_task())]
    assert [loss.item() for loss in columns] == pytest.approx(
        [binary_cross_entropy(outputs[:, i], targets[:, i].float()).item() for i in range(3)]
    )
    return sum(columns) / len(columns)


@pytest.mark.parametrize("way", [in_one_call, column_by_column])
def test_equal_weights_are_the_plain_loss(way):
    model, criterion = made()
    plain = copy.deepcopy(model)
    found = way(criterion, model(X), Y)
    expected = binary_cross_entropy(plain(X), Y.float(), reduction="sum" if way is in_one_call else "mean")
    assert found.item() == pytest.approx(expected.item())
    (found + model.trunk[0].weight.square().sum()).backward()  # trainers add a penalty
    (expected + plain.trunk[0].weight.square().sum()).backward()
    assert torch.allclose(gradient(model), gradient(plain), rtol=1e-4, atol=1e-6)


def test_holes_and_a_loss_per_task():
    model, criterion = made(loss=[binary_cross_entropy, mse_loss, l1_loss])
    targets = Y.float()
    targets[2:, 1] = torch.nan
    outputs = model(X)
    found = criterion(outputs, targets)
    expected = (
        binary_cross_entropy(outputs[:, 0], targets[:, 0])
        + mse_loss(outputs[:2, 1], targets[:2, 1])
        + l1_loss(outputs[:, 2], targets[:, 2])
    )
    assert found.item() == pytest.approx(expected.item())
    found.backward()
    assert gradient(model).isfinite().all()


def test_one_layer_for_all_tasks_needs_no_columns():
    trunk, head = nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Linear(8, 3)
    criterion = MatrixLoss(excessmtl.create("excess", tasks=TASKS, shared=trunk), mse_loss)
    outputs = head(trunk(X))
    (expected,) = torch.autograd.grad(mse_loss(outputs, Y.float()) * 3, [head.weight], retain_graph=True)
    criterion(outputs, Y).backward()
    assert torch.allclose(head.weight.grad, expected, atol=1e-6)  # heads="unweighted" is the default of excess


def test_evaluation_is_a_plain_number():
    model, criterion = made("excess")
    with torch.no_grad():
        value = criterion(model(X), Y)
    assert value.item() == pytest.approx(3 * binary_cross_entropy(model(X), Y.float()).item())


@pytest.mark.parametrize("way", [in_one_call, column_by_column])
@pytest.mark.parametrize("probabilities", [True, False])
def test_robust_losses_take_probabilities(way, probabilities):
    """The step of a MultiTaskLoss that is given the logits."""
    model, twin = Model(), Model()
    last = nn.Sigmoid() if probabilities else nn.Identity()
    for head in model.heads:
        head[1] = last
    kinds = {"click": "binary", "like": "binary", "buy": "regression"}
    mine, its = (excessmtl.MultiTaskLoss(kinds, network.trunk) for network in (model, twin))
    criterion = MatrixLoss(mine, columns=model.heads, probabilities=probabilities)
    targets = Y.float()
    targets[3:5, 0] = torch.nan
    for _ in range(3):
        outputs = model(X)
        if way is in_one_call:
            criterion(outputs, targets).backward()
        else:
            sum(loss(outputs[:, i], targets[:, i]) for i, loss in enumerate(criterion.per_task())).backward()
        z = twin.trunk(X)
        logits = {task: head[0](z) for task, head in zip(TASKS, twin.heads, strict=True)}
        its.backward(logits | {"buy": last(logits["buy"])}, {task: targets[:, i] for i, task in enumerate(TASKS)})
        torch.testing.assert_close(gradient(model), gradient(twin), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(mine.losses["click"].noise, its.losses["click"].noise)
    certain = torch.tensor([[0.0, 1.0, 0.5]], requires_grad=True)
    assert MatrixLoss(mine, probabilities=True)(certain, 1 - certain.detach()).isfinite()


def test_what_is_wrong_is_said():
    model, criterion = made()
    with pytest.raises(ValueError, match="loss must have one entry per task, 3, found 2"):
        MatrixLoss(criterion.balancer, [mse_loss, mse_loss])
    kinds = excessmtl.MultiTaskLoss(dict.fromkeys(TASKS, "classification"), model.trunk)
    with pytest.raises(ValueError, match=r"'click' is of kind 'classification'.*output per class"):
        MatrixLoss(kinds)
    with pytest.raises(ValueError, match="loss is not used beside a MultiTaskLoss"):
        MatrixLoss(kinds, mse_loss)
    with pytest.raises(ValueError, match="columns must have one entry per task, 3, found 2"):
        MatrixLoss(criterion.balancer, columns=model.heads[:2])
    with pytest.raises(ValueError, match=r"y must be \[batch, tasks\], here \[8, 3\], found \[8, 2\]"):
        criterion(model(X), Y[:, :2])
    with pytest.raises(ValueError, match="reduction"):
        criterion(model(X), Y, reduction="none")
    with pytest.raises(ValueError, match="in the order of tasks"):
        criterion.per_task()[1](model(X)[:, 1], Y[:, 1])
    first = model(X)
    model(X)
    with pytest.raises(ValueError, match="before the next forward"):
        criterion(first, Y)
