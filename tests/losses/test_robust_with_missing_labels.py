"""Robust losses of targets with holes learn from the labels alone, as if the labelled entries had been selected."""

from functools import cache

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import excessmtl
from excessmtl.integrations import MatrixLoss
from excessmtl.losses import RobustBCEWithLogits, RobustCrossEntropy, RobustMSELoss, by_task
from models import DEVICE

# One layer computes all classes of all tasks.
pytestmark = pytest.mark.filterwarnings("ignore:.*parameters outside shared")
TASKS = ["a", "b"]
MISSING = 0.6
SAMPLES, FEATURES = 1024, 8


def binary(scores):
    return (scores > 0).float()


def classes(scores):
    return torch.stack([scores, -scores, scores.abs() - 0.7], -1).argmax(-1)


KINDS = {
    "binary": (RobustBCEWithLogits, binary, 1, torch.nan),
    "classes": (RobustCrossEntropy, classes, 3, -100),
    "numbers": (RobustMSELoss, lambda scores: scores, 1, torch.nan),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def data(kind):
    """Inputs, labels without a mistake, and the same labels with holes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = KINDS[kind][1](x @ torch.randn(FEATURES, len(TASKS), generator=generator) / FEATURES**0.5)
    holes = torch.rand(labels.shape, generator=generator) < MISSING
    return x.to(DEVICE), labels.to(DEVICE), labels.masked_fill(holes, KINDS[kind][3]).to(DEVICE)


class Model(nn.Module):
    """Outputs [batch, tasks], for classes [batch, tasks, classes]."""

    def __init__(self, outputs):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU())
        self.head = nn.Linear(32, len(TASKS) * outputs)
        self.outputs = outputs

    def forward(self, x):
        outputs = self.head(self.trunk(x))
        return outputs if self.outputs == 1 else outputs.unflatten(1, (len(TASKS), self.outputs))


def selected(losses, balancer, outputs, targets):
    """Each loss is called with the labelled entries alone."""
    counts = (targets != -100) & ~targets.isnan()
    mask = {task: counts[:, i] for i, task in enumerate(TASKS)}
    columns = ((task, outputs[:, i][mask[task]], targets[:, i][mask[task]]) for i, task in enumerate(TASKS))
    balancer.backward({task: losses[task](*pair).mean() for task, *pair in columns}, mask=mask)


def table(losses, balancer, outputs, targets):
    means, mask = by_task(outputs, targets, TASKS, dict(losses))
    balancer.backward(means, mask=mask)


def matrix(losses, balancer, outputs, targets):
    MatrixLoss(balancer, dict(losses))(outputs, targets).backward()


def matrix_column_by_column(losses, balancer, outputs, targets):
    columns = MatrixLoss(balancer, dict(losses)).per_task()
    sum(loss(outputs[:, i], targets[:, i]) for i, loss in enumerate(columns)).backward()


@cache
def trained(kind, way, steps):
    """The losses after a short training, the model's outputs, and the true labels."""
    make, _, outputs, _ = KINDS[kind]
    x, labels, targets = data(kind)
    torch.manual_seed(1)
    model = Model(outputs).to(DEVICE)
    losses = nn.ModuleDict({task: make(reduction="none") for task in TASKS}).to(DEVICE)
    balancer = excessmtl.create("uniform", tasks=TASKS, shared=model.trunk)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for rows in torch.randint(SAMPLES, (steps, 128), generator=torch.Generator().manual_seed(2)).to(DEVICE):
        optimiser.zero_grad()
        way(losses, balancer, model(x[rows]), targets[rows])
        optimiser.step()
    with torch.no_grad():
        return losses, model(x), labels


WAYS = [(kind, way) for kind in ("binary", "numbers") for way in (table, matrix, matrix_column_by_column)]


@pytest.mark.parametrize(("kind", "way"), [("classes", table), *WAYS])
def test_training_is_that_on_the_labelled_entries(kind, way):
    losses, outputs, _ = trained(kind, way, 50)
    expected, wanted, _ = trained(kind, selected, 50)
    torch.testing.assert_close(losses.state_dict(), expected.state_dict(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(outputs, wanted, rtol=1e-2, atol=1e-2)


@each_kind
def test_holes_in_clean_labels_are_not_noise(kind):
    losses, outputs, labels = trained(kind, table, 150)
    assert all(loss.noise < 0.1 for loss in losses.values())
    if kind == "numbers":
        assert (outputs - labels).square().mean() < 0.05 * labels.var()
    else:
        predicted = outputs.argmax(-1) if kind == "classes" else (outputs > 0).float()
        assert (predicted == labels).float().mean() > 0.95


@pytest.mark.parametrize("way", [matrix, matrix_column_by_column])
def test_evaluation_with_a_matrix_loss_teaches_the_losses_nothing(way):
    x, labels, _ = data("binary")
    model = Model(1).to(DEVICE)
    losses = nn.ModuleDict({task: RobustBCEWithLogits(reduction="none") for task in TASKS}).to(DEVICE)
    criterion = MatrixLoss(excessmtl.create("uniform", tasks=TASKS, shared=model.trunk), dict(losses))
    with torch.no_grad():
        if way is matrix:
            criterion(model(x), labels)
        else:
            for i, loss in enumerate(criterion.per_task()):
                loss(model(x)[:, i], labels[:, i])
    assert not any(value.any() for value in losses.state_dict().values())
    assert all(loss.training for loss in losses.values())


def test_a_loss_that_takes_a_mask_is_given_it():
    seen = []

    def loss(output, target, mask):
        seen.append(mask)
        return (output - target).square()

    targets = torch.tensor([[0.0, torch.nan], [torch.nan, 1.0]])
    by_task(torch.zeros(2, 2), targets, TASKS, loss)
    assert torch.equal(torch.stack(seen, 1), ~targets.isnan())


def test_class_probabilities_are_refused_by_the_robust_loss_and_taken_by_the_plain_one():
    outputs, targets = {"a": torch.zeros(4, 3)}, {"a": torch.full((4, 3), 1 / 3)}
    assert by_task(outputs, targets, TASKS, cross_entropy)[0]["a"] > 0
    with pytest.raises(ValueError, match=r"class probabilities cannot have a mask.*labelled rows"):
        by_task(outputs, targets, TASKS, RobustCrossEntropy(reduction="none"))
