"""`MultiTaskLoss`: the numbers of a balancer, losses and a diagnosis put together by hand."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss

import excessmtl
from excessmtl import MultiTaskLoss
from excessmtl.losses import RobustBCEWithLogits, RobustCrossEntropy, RobustMSELoss, by_task
from models import DEVICE, MultiTask
from steps import assert_same, gradients
from test_no_host_reads import NoHostReads

KINDS = {"digit": "classification", "spam": "binary", "price": "regression", "own": nn.L1Loss()}
ROBUST = {"digit": RobustCrossEntropy, "spam": RobustBCEWithLogits, "price": RobustMSELoss}
PLAIN = {"digit": cross_entropy, "spam": binary_cross_entropy_with_logits, "price": mse_loss, "own": l1_loss}
OUTPUTS = {"digit": 4, "spam": 1, "price": 1, "own": 2}
TASKS, BATCH = list(KINDS), 32


class Model(MultiTask):
    def __init__(self, outputs=OUTPUTS):
        trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        super().__init__(trunk, {task: nn.Linear(16, size) for task, size in outputs.items()})
        self.to(DEVICE)


def batch(seed=0):
    """Inputs, and labels of which some are missing, each in the way of its kind."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, 6, generator=random)
    targets = {
        "digit": torch.randint(4, (BATCH,), generator=random),
        "spam": torch.randint(2, (BATCH,), generator=random).float(),
        "price": torch.randn(BATCH, generator=random) + x[:, 0],
        "own": torch.randn(BATCH, 2, generator=random),
    }
    for task, first in zip(TASKS, (3, 6, 9, 12), strict=True):
        targets[task][first : first + 8] = -100 if task == "digit" else torch.nan
    return x.to(DEVICE), {task: target.to(DEVICE) for task, target in targets.items()}


def train(model, criterion, steps, first=0):
    for seed in range(first, first + steps):
        x, targets = batch(seed)
        model.zero_grad()
        step = criterion.backward(model(x), targets)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    return step


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize("scalar", [False, True])
def test_the_numbers_of_its_parts(robust, scalar):
    model = Model()
    by_hand = copy.deepcopy(model)
    criterion = MultiTaskLoss(KINDS, model.trunk, robust=robust, protect={"spam": 0.2}, scale="mean")
    options = {"protect": {"spam": 0.2}, "scale": "mean", "likelihoods": (True, True, "own", False) if robust else []}
    balancer = excessmtl.create("excess", TASKS, by_hand.trunk, **options)
    losses = PLAIN | ({task: make(reduction="none").to(DEVICE) for task, make in ROBUST.items()} if robust else {})
    for seed in range(25):  # the robust estimate of numbers is fitted from the 20th batch on
        x, targets = batch(seed)
        values, mask = by_task(by_hand(x), targets, TASKS, losses)
        if scalar:
            criterion(model(x), targets).backward()
            balancer(values, mask=mask).backward()
        else:
            found, expected = criterion.backward(model(x), targets), balancer.backward(values, mask=mask)
            assert torch.equal(found.losses, expected.losses)
            assert torch.equal(found.weights, expected.weights)
        assert_same(gradients(model), gradients(by_hand))
    assert [hasattr(loss, "noise") for loss in criterion.losses.values()] == [robust] * 3 + [False]
    for task in ROBUST if robust else ():
        assert torch.equal(criterion.losses[task].noise, losses[task].noise)


def with_mask(outputs, targets):
    """Missing labels named by a mask; a wrong number stands in their place."""
    missing = {task: target == -100 if task == "digit" else target.isnan() for task, target in targets.items()}
    filled = {task: target.masked_fill(missing[task], 1) for task, target in targets.items()}
    return outputs, filled, {task: ~missing[task] for task in targets} | {"own": ~missing["own"].any(1)}


def as_floats(outputs, targets):
    """Class numbers as floats with NaN, labels of two classes as integers with -100."""
    digit = targets["digit"].float().masked_fill(targets["digit"] == -100, torch.nan)
    return outputs, targets | {"digit": digit, "spam": targets["spam"].nan_to_num(-100).long()}, None


def as_attributes(outputs, targets):
    return SimpleNamespace(hidden_states=None, **outputs), SimpleNamespace(**targets), None


@dataclass(init=False)
class Output(dict):
    """As those of Hugging Face: a dict, and a dataclass, with more in it than tasks."""


def as_model_output(outputs, targets):
    return Output(outputs, loss=None, hidden_states=()), Output(targets, loss=None), None


@pytest.mark.parametrize("form", [with_mask, as_floats, as_attributes, as_model_output])
def test_forms_of_the_same_batch(form):
    model = Model()
    other = copy.deepcopy(model)
    criterion, its = MultiTaskLoss(KINDS, model.trunk), MultiTaskLoss(KINDS, other.trunk)
    for seed in range(3):
        x, targets = batch(seed)
        criterion.backward(model(x), targets)
        outputs, targets, mask = form(other(x), targets)
        its.backward(outputs, targets, mask=mask)
    assert_same(gradients(other), gradients(model))
    assert_same(its.state_dict(), criterion.state_dict())


@pytest.mark.filterwarnings("ignore:.*parameters outside shared")
@pytest.mark.parametrize("time", [(), (5,)])
@pytest.mark.parametrize("kind", ["binary", "regression", "classification"])
def test_matrices_of_outputs_and_labels(kind, time):
    encoder, head = nn.Linear(6, 16).to(DEVICE), nn.Linear(16, 2 * 3 * 5).to(DEVICE)
    x, classes = torch.randn(BATCH, 6, device=DEVICE), slice(None) if kind == "classification" else 0
    targets = torch.randint(2, (BATCH, 2, *time), device=DEVICE).float()
    targets[::3, 0] = targets[1::4, 1] = torch.nan
    steps = []
    for as_dicts in (False, True):
        criterion = MultiTaskLoss(dict.fromkeys("ab", kind), encoder)
        outputs = head(encoder(x)).view(BATCH, 2, 3, 5)[:, :, classes][..., slice(None) if time else 0]
        values = ({"a": both[:, 0], "b": both[:, 1]} if as_dicts else both for both in (outputs, targets))
        steps.append(criterion.backward(*values))
    assert steps[0].losses.isfinite().all()
    assert torch.equal(steps[0].losses, steps[1].losses)
    assert torch.equal(steps[0].weights, steps[1].weights)


def test_a_task_without_labels_keeps_its_state():
    model = Model()
    criterion = MultiTaskLoss(KINDS, model.trunk)
    train(model, criterion, 3)
    x, targets = batch()
    noise, weights = criterion.losses["digit"].rate.steps.clone(), criterion.balancer.weights.clone()
    criterion.backward(model(x), {"price": targets["price"], "digit": None})
    assert torch.equal(criterion.losses["digit"].rate.steps, noise)
    criterion.backward(model(x), targets | {"digit": torch.full_like(targets["digit"], -100)})
    assert torch.equal(criterion.losses["digit"].rate.steps, noise)
    assert not torch.equal(criterion.balancer.weights, weights)


def test_options_of_the_losses():
    weight, positive = torch.tensor([1.0, 2.0, 3.0, 4.0], device=DEVICE), torch.tensor(5.0, device=DEVICE)
    own = {"digit": {"weight": weight, "label_smoothing": 0.1}, "spam": {"pos_weight": positive}}
    model = Model()
    x, targets = batch()
    targets = {task: targets[task][20:] for task in ROBUST}  # those with labels
    outputs = {task: output[20:] for task, output in model(x).items()}
    kinds = {task: KINDS[task] for task in ROBUST}
    digit = cross_entropy(outputs["digit"], targets["digit"], weight, label_smoothing=0.1, reduction="none").mean()
    spam = binary_cross_entropy_with_logits(outputs["spam"][:, 0], targets["spam"], pos_weight=positive)
    expected = torch.stack([digit, spam, mse_loss(outputs["price"][:, 0], targets["price"])]).detach()
    plain = MultiTaskLoss(kinds, model.trunk, "uniform", robust=False, loss_options=own)
    robust = MultiTaskLoss(kinds, model.trunk, loss_options={**own, "price": {"strength": 0.5}})
    torch.testing.assert_close(plain.backward(outputs, targets).losses, expected)
    assert robust.losses["price"].strength == 0.5
    assert torch.equal(robust.losses["digit"].weight, weight)
    for criterion in (plain, robust.eval()):
        with torch.no_grad():
            torch.testing.assert_close(criterion(outputs, targets), expected.mean())


def test_evaluation_is_the_plain_mean_and_changes_nothing():
    model = Model()
    criterion = MultiTaskLoss(KINDS, model.trunk)
    train(model, criterion, 5)
    before = copy.deepcopy(criterion.state_dict())
    x, targets = batch(9)
    losses, _ = by_task(model(x), targets, TASKS, PLAIN)
    expected = torch.stack(list(losses.values())).mean()
    with torch.no_grad():
        torch.testing.assert_close(criterion(model(x), targets), expected)
    criterion.eval()
    torch.testing.assert_close(criterion(model(x), targets), expected)
    # A task that has no label in the batch does not count as one with the loss 0.
    fewer = targets | {"own": targets["own"] * torch.nan, "spam": None}
    torch.testing.assert_close(criterion(model(x), fewer), (losses["digit"] + losses["price"]) / 2)
    assert_same(criterion.state_dict(), before)


def test_a_state_resumes_bit_for_bit():
    model = Model()
    criterion = MultiTaskLoss(KINDS, model.trunk, "excess")
    train(model, criterion, 22)
    other = copy.deepcopy(model)
    resumed = MultiTaskLoss(KINDS, other.trunk)
    resumed.load_state_dict(criterion.state_dict())
    assert resumed.state_dict().keys() == criterion.state_dict().keys()
    copied_model, copied = copy.deepcopy((model, criterion))
    for mine, its in ((model, criterion), (other, resumed), (copied_model, copied)):
        train(mine, its, 5, first=22)
    for mine, its in ((other, resumed), (copied_model, copied)):
        assert_same(its.state_dict(), criterion.state_dict())
        assert_same(dict(mine.named_parameters()), dict(model.named_parameters()))


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [
        (KINDS, {"robust": False}, "saved with likelihoods"),
        (dict(reversed(KINDS.items())), {}, "state is for tasks"),
        ({f"{task} 2": kind for task, kind in KINDS.items()}, {}, "state is for tasks"),
        (KINDS, {"method": "uniform"}, "state is for method 'excess', this balancer has 'uniform'"),
        (KINDS, {"scale": "mean"}, "scale"),
        (KINDS | {"price": "binary"}, {}, "task 'price' as regression, here it is binary"),
        (KINDS | {"own": "regression"}, {}, "task 'own' as a loss of its own, here it is regression"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(tasks, options, message):
    model = Model()
    criterion = MultiTaskLoss(KINDS, model.trunk)
    train(model, criterion, 2)
    other = MultiTaskLoss(tasks, model.trunk, **options)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(criterion.state_dict())
    assert_same(other.state_dict(), before)


class Counting(nn.Module):
    """A loss with layers whose sizes are found out later, and a state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.LazyLinear(1), {"calls": 0}

    def forward(self, input, target):
        self.calls = {"calls": self.calls["calls"] + 1}
        return (self.layer(input) - target).abs()

    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, state):
        self.calls = state


def test_losses_of_any_state_are_restored():
    trained, fresh = (MultiTaskLoss({"a": Counting()}, nn.Linear(1, 1)) for _ in range(2))
    trained.by_task({"a": torch.ones(4, 1)}, {"a": torch.ones(4, 1)})
    fresh.load_state_dict(trained.state_dict())
    assert fresh.losses["a"].calls == {"calls": 1}
    assert torch.equal(fresh.losses["a"].layer.weight, trained.losses["a"].layer.weight)


def test_a_state_of_a_loss_of_another_shape_changes_nothing():
    criterion, other = (MultiTaskLoss({"a": nn.PReLU(size)}, nn.Linear(1, 1)) for size in (2, 3))
    criterion.balancer.weights.fill_(0.5)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"of another shape \['task_losses.0.training_loss.weight'\]"):
        other.load_state_dict(criterion.state_dict())
    assert_same(other.state_dict(), before)


@pytest.mark.parametrize("inside", [False, True])
def test_a_state_without_kinds_is_of_an_earlier_version_and_loads(inside):
    model = Model()
    criterion, other = (MultiTaskLoss(KINDS, model.trunk) for _ in range(2))
    train(model, criterion, 2)
    saved, into = (nn.ModuleDict({"a": part}) if inside else part for part in (criterion, other))
    state = {key: value for key, value in saved.state_dict().items() if key not in ("_extra_state", "a._extra_state")}
    assert len(state) == len(saved.state_dict()) - 1
    into.load_state_dict(state)
    assert_same(other.state_dict(), criterion.state_dict())
    if inside:  # as in a LightningModule
        plain = nn.ModuleDict({"a": MultiTaskLoss(dict.fromkeys(KINDS, "binary"), model.trunk, robust=False)})
        with pytest.raises(ValueError, match="task 'digit' as classification, here it is binary"):
            plain.load_state_dict(saved.state_dict(), strict=False)


def test_a_task_that_is_learned_slowly_is_not_taken_for_a_noisy_one():
    found, tasks = {}, ("fast", "slow", "noisy")
    for method in ("uniform", "excess"):
        torch.manual_seed(0)
        model = Model(dict.fromkeys(tasks, 1))
        criterion = MultiTaskLoss(dict.fromkeys(tasks, "regression"), model.trunk, method)
        optimiser = torch.optim.AdamW(model.parameters(), 5e-3)
        x, other = torch.randn(2, 3000, 6, device=DEVICE)
        labels = {"fast": x[:, :1], "slow": torch.sin(2 * x[:, 1:2]) * 1.4}
        labels["noisy"] = torch.where(other[:, :1] < 0.3, other[:, 1:2], x[:, 2:3])
        for start in range(0, 32000, 64):
            rows = torch.arange(start, start + 64, device=DEVICE) % 2000
            optimiser.zero_grad()
            step = criterion.backward(model(x[rows]), {task: labels[task][rows] for task in tasks})
            optimiser.step()
        found[method] = (model(x[2000:])["slow"] - labels["slow"][2000:]).square().mean().item()
    assert found["excess"] < 1.02 * found["uniform"]
    assert step["slow"].weight > 0.8
    assert criterion.losses["noisy"].noise > 2 * criterion.losses["slow"].noise


def test_tasks_come_and_go():
    model = Model()
    criterion = MultiTaskLoss({task: KINDS[task] for task in TASKS[:2]}, model.trunk)
    x, targets = batch()

    def step():
        return criterion.backward(model(x), {task: targets[task] for task in criterion.tasks})

    step()
    noise = criterion.losses["spam"].noise.clone()
    criterion.add_task("price", "regression", {"strength": 0.0})
    with pytest.raises(ValueError, match=r"tasks\['own'\] must be one of"):
        criterion.add_task("own", "numbers")
    with pytest.raises(ValueError, match="more than once"):
        criterion.add_task("digit", "regression")
    assert criterion.tasks == ("digit", "spam", "price")
    assert criterion.balancer.rule.likelihoods == (True, True, "own")
    assert torch.equal(criterion.losses["spam"].noise, noise)
    criterion.remove_task("digit")
    assert step().losses.isfinite().tolist() == [True, True]
    assert criterion.balancer.rule.likelihoods == (True, "own")
    fresh = MultiTaskLoss({"spam": "binary", "price": "regression"}, model.trunk)
    fresh.load_state_dict(criterion.state_dict())
    assert torch.equal(fresh.losses["spam"].noise, criterion.losses["spam"].noise)


def test_a_scaler_and_micro_batches():
    """Losses of two equal micro-batches, divided by two, are those of one batch; a scaler scales gradients alone."""
    model = Model()
    scaled, halves = copy.deepcopy(model), copy.deepcopy(model)
    x, targets = batch()
    options = {"method": "uniform", "robust": False}
    expected = MultiTaskLoss(KINDS, model.trunk, **options).backward(model(x), targets)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    step = MultiTaskLoss(KINDS, scaled.trunk, **options).backward(scaled(x), targets, scaler=scaler)
    torch.testing.assert_close(step.losses, expected.losses)
    for name, gradient in gradients(scaled).items():
        torch.testing.assert_close(gradient, 8 * gradients(model)[name])
    criterion = MultiTaskLoss(KINDS, halves.trunk, **options)
    for accumulate in (True, False):
        step = criterion.backward(halves(x), targets, accumulate=accumulate, micro_batches=2)
    torch.testing.assert_close(step.losses, expected.losses)
    assert criterion.balancer.steps == 1
    for name, gradient in gradients(halves).items():
        torch.testing.assert_close(gradient, gradients(model)[name])


def test_no_step_waits_for_the_device():
    model = Model()
    criterion = MultiTaskLoss({"digit": "classification", "price": "regression"}, model.trunk)
    x, targets = batch()
    targets = {task: targets[task] for task in criterion.tasks}
    criterion.backward(model(x), targets)
    with NoHostReads():
        criterion.backward(model(x), targets)


@pytest.mark.parametrize("method", ["gradnorm", "mgda", "famo", "uw"])
def test_other_methods(method):
    model = Model()
    assert train(model, MultiTaskLoss(KINDS, model, method, z="trunk"), 3).weights.isfinite().all()


MISTAKES = {
    "kind": (lambda m: MultiTaskLoss({"a": "regresion"}, m.trunk), r"tasks\['a'\] must be one of .*'regresion'"),
    "no loss": (lambda m: MultiTaskLoss({"a": None}, m.trunk), r"tasks\['a'\] must be one of .*None"),
    "a list": (lambda m: MultiTaskLoss(["a"], m.trunk), "tasks must be a dict"),
    "nothing": (lambda m: MultiTaskLoss({}, m.trunk), "tasks is empty"),
    "option": (lambda m: MultiTaskLoss(KINDS, m.trunk, loss_options={"digit": {"pos": 1}}), "'pos', which .*'weight'"),
    "own": (lambda m: MultiTaskLoss(KINDS, m.trunk, loss_options={"own": {"weight": 1}}), "a loss of its own"),
    "options of": (lambda m: MultiTaskLoss(KINDS, m.trunk, loss_options={"dig": {}}), "unknown task 'dig'"),
    "no outputs": (lambda m: step_with(m, outputs={}), "outputs has no task in it"),
    "no targets": (lambda m: step_with(m, targets={}), "targets has no task in it"),
    "unknown": (lambda m: step_with(m, targets={"digits": 0}), "targets names unknown task 'digits'"),
    "numbers": (lambda m: step_with(m, targets={"spam": [0, 1]}), r"targets\['spam'\] must be a tensor, found list"),
    "output": (lambda m: step_with(m, outputs={"own": torch.zeros(32, 2)}), "outputs has no task 'digit'"),
    "classes": (lambda m: step_with(m, targets={"digit": torch.zeros(32, 4)}), r"\(32, 4\) and \(32, 4\); class prob"),
    "shape": (lambda m: step_with(m, targets={"price": torch.zeros(32, 3)}), r"'price' must be alike .*\(32, 3\)"),
    "matrix": (lambda m: step_with(m, targets=torch.zeros(32, 3)), r"targets must be \[batch, 4 tasks"),
    "mask": (lambda m: step_with(m, mask={"price": torch.ones(32)}), "mask of task 'price' must be a bool tensor"),
    "micro": (lambda m: step_with(m, micro_batches=0), "micro_batches must be at least 1"),
}


def step_with(model, **other):
    x, targets = batch()
    MultiTaskLoss(KINDS, model.trunk).backward(**{"outputs": model(x), "targets": targets, **other})


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        call(Model())


def test_the_noisy_task_is_found():
    """Half of the labels of "b" are random; a fifth of the data is held out."""
    x = torch.randn(2500, 6, device=DEVICE)
    targets = {"a": x[:, :3].argmax(1), "b": x[:, 3:].argmax(1), "c": x[:, 0] + x[:, 5]}
    wrong = torch.rand(2500, device=DEVICE) < 0.5
    targets["b"] = torch.where(wrong, torch.randint(3, (2500,), device=DEVICE), targets["b"])
    kinds = {"a": "classification", "b": "classification", "c": "regression"}
    model = Model({"a": 3, "b": 3, "c": 1})
    criterion = MultiTaskLoss(kinds, model.trunk)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(400):
        rows = torch.randint(500, 2500, (64,))
        optimiser.zero_grad()
        criterion.backward(model(x[rows]), {task: target[rows] for task, target in targets.items()})
        optimiser.step()
    outputs, targets = model(x[:500]), {task: target[:500] for task, target in targets.items()}
    report = criterion.diagnose(outputs, targets)
    assert {task.task: task.verdict for task in report.tasks} == {"a": "clean", "b": "noisy", "c": "clean"}
    assert report["b"].noise_rate == pytest.approx(0.5, abs=0.12)
    assert str(report) == str(excessmtl.diagnose(outputs, targets, kinds))
    live = criterion.diagnose()
    assert [live[task].verdict for task in "ab"] == ["clean", "suspect"]
    assert live["b"].noise_rate == pytest.approx(float(criterion.losses["b"].noise))
    # Labels that are missing are left out, and so is a task without any.
    hidden = torch.arange(500, device=DEVICE) < 100
    partly = criterion.diagnose(outputs, {"a": targets["a"], "b": targets["b"]}, mask={"a": ~hidden})
    assert [partly[task].samples for task in "abc"] == [400, 500, 0]


def test_labels_of_positions_are_diagnosed_one_by_one():
    criterion = MultiTaskLoss({"a": "classification", "b": "binary", "c": "regression"}, nn.Linear(1, 1))
    outputs = {"a": torch.randn(40, 3, 5), "b": torch.randn(40, 5), "c": torch.randn(40, 5, 2)}
    targets = {"a": torch.randint(3, (40, 5)), "b": torch.randint(2, (40, 5)), "c": torch.randn(40, 5, 2)}
    targets["a"][0], targets["b"][:2], targets["c"][0, 0] = -100, -100, torch.nan
    assert [task.samples for task in criterion.diagnose(outputs, targets).tasks] == [195, 190, 398]
    flat = {task: target.flatten() for task, target in targets.items()}
    lists = {task: target.tolist() for task, target in flat.items()}
    reports = [str(criterion.diagnose(outputs, targets, second_labels=own)) for own in (targets, flat, lists)]
    assert len(set(reports)) == 1
    assert str(criterion.diagnose(outputs, targets, second_labels={})) == str(criterion.diagnose(outputs, targets))


@pytest.mark.parametrize("method", ["excess", "graddrop"])
@pytest.mark.parametrize("maps", [False, True])
def test_tokens_and_maps_may_be_flattened(method, maps):
    """`logits.view(-1, classes)`, with the label -100 where there is none, is the batch of sequences it came from."""
    inputs, labels = torch.randn(6, 5, 4, device=DEVICE), torch.randint(3, (6, 5), device=DEVICE)
    labels[0], labels[2:, 3:] = -100, -100  # a sequence without labels, and padding
    layer, features = (lambda *size: nn.Conv2d(*size, 1), 1) if maps else (nn.Linear, 2)
    if maps:
        inputs, labels = inputs.mT[..., None], labels[..., None]
    steps = []
    for flat in (False, True):
        torch.manual_seed(0)
        trunk, heads = layer(4, 8).to(DEVICE), {task: layer(8, 3).to(DEVICE) for task in "ab"}
        criterion = MultiTaskLoss(dict.fromkeys("ab", "classification"), trunk, method)
        z = trunk(inputs)
        outputs = {task: head(z).movedim(features, 1) for task, head in heads.items()}
        if flat:
            outputs = {task: output.movedim(1, -1).flatten(0, -2) for task, output in outputs.items()}
        step = criterion.backward(outputs, dict.fromkeys("ab", labels.flatten() if flat else labels))
        steps.append((step.weights, step.losses, trunk.weight.grad))
    torch.testing.assert_close(*steps)
    output = heads["a"](trunk(inputs)).movedim(features, -1).flatten(0, -2)
    with pytest.raises(ValueError, match=r"mask has 29 entries for a batch of 6; give one per sample or one per pos"):
        criterion.backward({"a": output[1:]}, {"a": labels.flatten()[1:]})
