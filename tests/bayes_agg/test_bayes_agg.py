"""BayesAgg: what a step leaves in `.grad`, missing labels, noise, resuming."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

import excessmtl
from models import DEVICE
from test_no_host_reads import NoHostReads

KINDS = {"price": "regression", "class": "classification", "churn": "binary"}


def model_of(seed=0, heads=None):
    torch.manual_seed(seed)
    trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 6), nn.Tanh())
    heads = heads or {"price": nn.Linear(6, 2), "class": nn.Linear(6, 3), "churn": nn.Linear(6, 1, bias=False)}
    return nn.ModuleDict({"trunk": trunk, "heads": nn.ModuleDict(heads)}).to(DEVICE)


def batch_of(seed=0, samples=10):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=generator)
    targets = {
        "price": torch.randn(samples, 2, generator=generator),
        "class": torch.randint(0, 3, (samples,), generator=generator),
        "churn": torch.randint(0, 2, (samples,), generator=generator).float(),
    }
    return x.to(DEVICE), {task: target.to(DEVICE) for task, target in targets.items()}


def sum_of_losses(model, x, targets):
    z = model["trunk"](x)
    out = {task: head(z) for task, head in model["heads"].items()}
    losses = [mse_loss(out["price"], targets["price"]), cross_entropy(out["class"], targets["class"])]
    return sum(losses) + binary_cross_entropy_with_logits(out["churn"].squeeze(1), targets["churn"])


def trained(bayes, model, epochs=1, batches=3):
    """Statistics of some epochs, no optimiser."""
    for _ in range(epochs):
        for seed in range(batches):
            x, targets = batch_of(seed + 100)
            bayes.backward(model["trunk"](x), targets)
        bayes.end_epoch()
    model.zero_grad()
    return bayes


def gradients(module):
    return [parameter.grad.clone() for parameter in module.parameters()]


def test_in_the_first_epoch_the_step_is_that_of_the_sum_of_the_losses():
    model, twin = model_of(), model_of()
    x, targets = batch_of()
    step = excessmtl.BayesAgg(model["heads"], KINDS).backward(model["trunk"](x), targets)
    sum_of_losses(twin, x, targets).backward()
    torch.testing.assert_close(gradients(model), gradients(twin))
    assert step.weights.tolist() == [1, 1, 1]
    torch.testing.assert_close(step.losses.sum(), sum_of_losses(twin, x, targets).detach())


def test_with_power_0_all_tasks_count_alike_and_sure_last_layers_give_the_plain_gradient():
    """Much data and a wide prior: the posterior of a regression is a point, the least-squares solution."""
    heads = {"a": nn.Linear(6, 1), "b": nn.Linear(6, 1)}
    model, generator = model_of(heads=heads), torch.Generator().manual_seed(0)
    truth = {task: torch.randn(1, 7, generator=generator).to(DEVICE) for task in heads}
    bayes = excessmtl.BayesAgg(model["heads"], "regression", prior_variance=1e6, power=0.0, warmup_epochs=0)
    z = model["trunk"](torch.randn(4000, 4, generator=generator).to(DEVICE)).detach().requires_grad_()
    rows = torch.cat((z.detach(), torch.ones(4000, 1, device=DEVICE)), 1)
    noise = {task: torch.randn(4000, 1, generator=generator).to(DEVICE) for task in heads}
    targets = {task: rows @ truth[task].T + noise[task] for task in heads}
    step = bayes.backward(z, targets)
    assert step.weights.tolist() == pytest.approx([1, 1])
    solutions = {task: torch.linalg.lstsq(rows, targets[task]).solution for task in heads}
    expected = sum(2 * (rows @ w - targets[task]) * w[:6].T for task, w in solutions.items())
    assert (4000 * z.grad - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_weights_are_shared_out_per_sample_and_heads_get_their_own_gradients(scale):
    model, twin = model_of(), model_of()
    bayes = trained(excessmtl.BayesAgg(model["heads"], KINDS, scale=scale, power=1.0), model)
    x, targets = batch_of()
    step = bayes.backward(model["trunk"](x), targets)
    assert float(step.weights.sum()) == pytest.approx(3 if scale == "sum" else 1, rel=1e-5)
    assert step.weights.max() > 1.2 * step.weights.min()
    sum_of_losses(twin, x, targets).backward()
    torch.testing.assert_close(gradients(model["heads"]), gradients(twin["heads"]))


def test_the_trunk_gets_the_precision_weighted_gradients():
    """By hand, from the posterior of one epoch and the batch."""
    from excessmtl.bayes_agg import last_layer

    heads = {"a": nn.Linear(6, 1), "b": nn.Linear(6, 1)}
    model = model_of(heads=heads)
    batches = [(x, {"a": t["price"][:, :1], "b": 3 * t["price"][:, 1:]}) for x, t in map(batch_of, range(3))]
    bayes = excessmtl.BayesAgg(model["heads"], "regression", power=0.7, prior_variance=0.1)
    for x, targets in batches[:2]:
        bayes.backward(model["trunk"](x), targets)
    bayes.end_epoch()
    z = model["trunk"](batches[2][0]).detach().requires_grad_()
    bayes.backward(z, batches[2][1])
    means, precisions = [], []
    for task in heads:
        everything = [(model["trunk"](x).detach(), targets[task]) for x, targets in batches]
        rows = torch.cat([torch.cat((one, torch.ones_like(one[:, :1])), 1) for one, _ in everything])
        labels = torch.cat([y for _, y in everything])
        found = last_layer.posterior(last_layer.evidence("regression", rows, None, labels), 0.1)
        moments = last_layer.exact_moments(found, rows[20:], labels[20:], 6)
        means.append(moments.mean)
        precisions.append(moments.variance**-0.7)
    weights = 2 * torch.stack(precisions) / sum(precisions)
    torch.testing.assert_close(z.grad, (weights * torch.stack(means)).sum(0) / 10, rtol=1e-4, atol=1e-6)


def test_a_noisy_regression_gets_less_weight():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(512, 4, generator=generator).to(DEVICE)
    y = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 2
    targets = {"clean": y, "noisy": y + 2 * torch.randn(512, generator=generator).to(DEVICE)}
    model = model_of(heads={"clean": nn.Linear(6, 1), "noisy": nn.Linear(6, 1)})
    bayes = excessmtl.BayesAgg(model["heads"], "regression")
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        for part in torch.randperm(512, generator=generator).split(64):
            optimiser.zero_grad()
            step = bayes.backward(model["trunk"](x[part]), {task: label[part] for task, label in targets.items()})
            optimiser.step()
        bayes.end_epoch()
    assert step["clean"].weight > 1.2 > 0.8 > step["noisy"].weight
    assert step["clean"].loss < 0.4


@pytest.mark.parametrize("warmup", [0, 1])
def test_samples_without_a_label_count_for_the_tasks_that_have_one(warmup):
    """Holes in the labels are as if each task had been given its labelled samples alone."""
    model = model_of()
    x, targets = batch_of()
    targets["price"][:4, 0] = torch.nan
    targets["class"][5], targets["class"][6] = -1, -100
    targets["churn"][3:7] = torch.nan
    bayes = excessmtl.BayesAgg(model["heads"], KINDS, warmup_epochs=warmup, power=0.0)
    step = bayes.backward(model["trunk"](x), targets)
    assert step.weights.tolist() == pytest.approx([1, 1, 1])
    found, statistics = gradients(model), bayes.state_dict()
    model.zero_grad()
    for task, labelled in (("price", slice(4, 10)), ("class", [0, 1, 2, 3, 4, 7, 8, 9]), ("churn", [0, 1, 2, 7, 8, 9])):
        alone = excessmtl.BayesAgg(model["heads"], KINDS, warmup_epochs=warmup, power=0.0, samples=100_000)
        alone.backward(model["trunk"](x[labelled]), {task: targets[task][labelled]})
        place = list(KINDS).index(task)
        torch.testing.assert_close(statistics[f"new_precision_{place}"], alone.state_dict()[f"new_precision_{place}"])
    for one, expected in zip(found, gradients(model), strict=True):  # draws differ where gradients are sampled
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-6 if warmup else 2e-2)


def test_a_sample_or_a_task_without_any_label():
    model = model_of()
    bayes = trained(excessmtl.BayesAgg(model["heads"], KINDS), model)
    before = bayes.backward(model["trunk"](batch_of()[0]), batch_of()[1])
    x, targets = batch_of()
    targets["price"][0], targets["class"][0], targets["churn"][:] = torch.nan, -1, torch.nan
    z = model["trunk"](x).detach().requires_grad_()
    step = bayes.backward(z, targets)
    assert not z.grad[0].any()
    assert z.grad.isfinite().all()
    assert step["churn"].weight == before["churn"].weight
    assert step.losses.isnan().tolist() == [False, False, True]
    assert bayes.backward(model["trunk"](x), {"price": targets["price"]})["price"].weight == pytest.approx(1)


def test_a_step_that_is_not_finite_is_not_remembered():
    model = model_of()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS, samples=8)
    x, targets = batch_of()
    bayes.backward(model["trunk"](x), targets)
    before = {name: buffer.clone() for name, buffer in bayes.named_buffers() if "new_" in name}
    bayes.backward(torch.nan * model["trunk"](x), targets)
    assert all(torch.equal(bayes.get_buffer(name), buffer) for name, buffer in before.items())


@pytest.mark.parametrize("bad", ["target", "infinite target", "head"])
@pytest.mark.parametrize("warmup", [0, 1])
def test_one_bad_task_is_left_out_and_the_others_train_as_if_it_had_no_label(warmup, bad):
    model, twin = model_of(), model_of()
    bayes, other = (excessmtl.BayesAgg(net["heads"], KINDS, warmup_epochs=warmup, samples=8) for net in (model, twin))
    x, targets = batch_of()
    for net, one in ((model, bayes), (twin, other)):
        one.backward(net["trunk"](x), targets)
        net.zero_grad(set_to_none=True)
    before = bayes.weights.clone()
    broken = {**targets, "price": targets["price"].clone()}
    if bad == "head":
        model["heads"]["price"].weight.data[0, 0] = torch.nan
    else:
        broken["price"][3, 1] = {"target": 1e20, "infinite target": 3e38}[bad]
    step = bayes.backward(model["trunk"](x), broken)
    alone = other.backward(twin["trunk"](x), {**targets, "price": None})
    assert step.skipped == ("price",)
    assert step["price"].weight == 0
    assert torch.equal(step.weights[1:], alone.weights[1:])
    assert torch.equal(bayes.weights[0], before[0])
    assert not any(gradient.any() for gradient in gradients(model["heads"]["price"]))
    for part in ("trunk", "class", "churn"):
        mine, its = (net["trunk"] if part == "trunk" else net["heads"][part] for net in (model, twin))
        assert all(map(torch.equal, gradients(mine), gradients(its)))
    assert all(torch.equal(buffer, other.get_buffer(name)) for name, buffer in bayes.named_buffers())


def test_a_last_layer_of_many_outputs_takes_bounded_memory(monkeypatch):
    """Draws are looked at some at a time."""
    largest = []
    monkeypatch.setattr("excessmtl.bayes_agg.last_layer._AT_ONCE", 64)
    model = model_of(heads={"many": nn.Linear(6, 5)})
    bayes = excessmtl.BayesAgg(model["heads"], "binary", warmup_epochs=0, samples=50)
    original = torch.Tensor.sigmoid
    monkeypatch.setattr(torch.Tensor, "sigmoid", lambda tensor: (largest.append(tensor.numel()), original(tensor))[1])
    bayes.backward(model["trunk"](batch_of()[0]), {"many": torch.ones(10, 5, device=DEVICE)})
    assert max(largest) <= 64


OPTIONS = {"prior_variance": 0.1, "power": 0.5, "samples": 8, "warmup_epochs": 0, "scale": "mean"}


@pytest.mark.parametrize("option", OPTIONS)
def test_a_state_of_other_options_is_refused_by_name_and_changes_nothing(option):
    model = model_of()
    state = trained(excessmtl.BayesAgg(model["heads"], KINDS), model).state_dict()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS, **{option: OPTIONS[option]})
    before = bayes.state_dict()
    with pytest.raises(ValueError, match=f"state has {option} "):
        bayes.load_state_dict(state)
    assert all(torch.equal(value, before[key]) for key, value in bayes.state_dict().items())
    same = excessmtl.BayesAgg(model["heads"], KINDS, **{option: OPTIONS[option]})
    same.load_state_dict(trained(bayes, model).state_dict())
    assert same.epochs == 1


def changed(state, **entries):
    told = {**json.loads(bytes(state["_extra_state"].tolist())), **entries}
    told = {name: value for name, value in told.items() if value is not None}
    return {**state, "_extra_state": torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)}


DAMAGED = {
    "unexpected keys": lambda state: {**state, "more": torch.zeros(3)},
    "weights must have shape": lambda state: {key: value for key, value in state.items() if key != "weights"},
    "precision_0 must have shape": lambda state: {**state, "precision_0": state["precision_0"].double()},
    "NaN or inf in new_information_1": lambda state: {
        **state,
        "new_information_1": state["new_information_1"] * torch.nan,
    },
    "steps=True": lambda state: changed(state, steps=True),
    "steps=-1": lambda state: changed(state, steps=-1),
    "epochs=None": lambda state: changed(state, epochs=None),
    "version 7": lambda state: changed(state, version=7),
    "tasks": lambda state: changed(state, tasks=["price", "class"]),
}


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a model"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_state_changes_nothing(damage, nested):
    model = model_of()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS)
    state = DAMAGED[damage](trained(excessmtl.BayesAgg(model["heads"], KINDS), model).state_dict())
    before = bayes.state_dict()
    loading = nn.ModuleDict({"bayes": bayes}) if nested else bayes
    with pytest.raises(ValueError, match=damage):
        loading.load_state_dict({f"bayes.{key}": value for key, value in state.items()} if nested else state)
    assert all(torch.equal(value, before[key]) for key, value in bayes.state_dict().items())


def test_a_state_from_before_options_were_saved_still_loads():
    model = model_of()
    saved = trained(excessmtl.BayesAgg(model["heads"], KINDS), model).state_dict()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS)
    bayes.load_state_dict(changed(saved, options=None))
    assert all(torch.equal(value, saved[key]) for key, value in bayes.state_dict().items())


def test_loading_by_assignment_does_not_share_memory_with_the_saved_state():
    model = model_of()
    bayes = trained(excessmtl.BayesAgg(model["heads"], KINDS), model)
    saved = bayes.state_dict()
    kept = copy.deepcopy(saved)
    bayes.load_state_dict(saved, assign=True)
    trained(bayes, model)
    assert all(torch.equal(saved[key], kept[key]) for key in kept)


def test_resuming_is_bit_exact_and_a_saved_state_stays():
    model = model_of()
    bayes = trained(excessmtl.BayesAgg(model["heads"], KINDS), model)
    bayes.backward(model["trunk"](batch_of(7)[0]), batch_of(7)[1])
    saved, twin = bayes.state_dict(), copy.deepcopy(model)
    kept = copy.deepcopy(saved)
    restored = excessmtl.BayesAgg(twin["heads"], KINDS)
    restored.load_state_dict(saved)
    for net, one in ((model, bayes), (twin, restored)):
        net.zero_grad()
        for seed in (8, 9):
            step = one.backward(net["trunk"](batch_of(seed)[0]), batch_of(seed)[1])
            one.end_epoch()
    assert all(map(torch.equal, gradients(model), gradients(twin)))
    assert torch.equal(bayes.state_dict()["_extra_state"], restored.state_dict()["_extra_state"])
    assert torch.equal(step.weights, bayes.weights)
    assert all(torch.equal(saved[key], kept[key]) for key in kept)


def test_a_state_of_something_else_is_refused_and_changes_nothing():
    model = model_of()
    bayes, other = excessmtl.BayesAgg(model["heads"], KINDS), {**KINDS, "churn": "regression"}
    state = trained(excessmtl.BayesAgg(model["heads"], other), model).state_dict()
    with pytest.raises(ValueError, match=r"kinds.*'regression'\], this BayesAgg has"):
        bayes.load_state_dict(state)
    with pytest.raises(ValueError, match="_extra_state"):
        bayes.load_state_dict({})
    wide = excessmtl.BayesAgg(model_of(heads={task: nn.Linear(6, 4) for task in KINDS})["heads"], KINDS)
    with pytest.raises(ValueError, match="same heads"):
        bayes.load_state_dict(trained(bayes, model).state_dict() | {"precision_0": wide.state_dict()["precision_1"]})
    assert not excessmtl.BayesAgg(model["heads"], KINDS).precision_0.any()


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_host_never_waits_for_the_device(warmup):
    model = model_of()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS, warmup_epochs=warmup, samples=4)
    x, targets = batch_of()
    with NoHostReads():
        bayes.backward(model["trunk"](x), targets)
        bayes.end_epoch()


def test_it_moves_and_is_never_rounded_and_leaves_the_heads_to_the_model():
    model = model_of()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS).to(torch.bfloat16)
    assert bayes.precision_0.dtype == torch.float32
    assert not list(bayes.parameters())
    assert model["heads"]["price"].weight.dtype == torch.float32
    with torch.autocast(DEVICE.type, torch.bfloat16):
        step = bayes.backward(model["trunk"](batch_of()[0]), batch_of()[1])
    assert step.losses.dtype == torch.float32
    assert step.losses.isfinite().all()


def test_a_forgotten_end_epoch_is_noticed(monkeypatch):
    monkeypatch.setattr("excessmtl.bayes_agg.bayes_agg._MANY_STEPS", 2)
    model = model_of()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS)
    x, targets = batch_of()
    bayes.backward(model["trunk"](x), targets)
    with pytest.warns(UserWarning, match="end_epoch has not been called in 2 steps"):
        bayes.backward(model["trunk"](x), targets)


LINEAR = {"a": nn.Linear(6, 1), "b": nn.Linear(6, 3)}
BAD = [
    (({}, "regression"), {}, "heads is empty"),
    (({"a": nn.ReLU()}, "regression"), {}, r"heads\['a'\].*nn.Linear.*ReLU"),
    (({**LINEAR, "c": nn.Linear(5, 1)}, "regression"), {}, r"heads\['c'\] has 5 inputs"),
    ((LINEAR, "ranking"), {}, r"kinds\['a'\].*'ranking'"),
    ((LINEAR, {"a": "binary"}), {}, "kinds must name each task once"),
    ((LINEAR, "classification"), {}, r"heads\['a'\] has one output"),
    ((LINEAR, "regression"), {"prior_variance": 0}, "prior_variance.*0"),
    ((LINEAR, "regression"), {"power": -1}, "power.*-1"),
    ((LINEAR, "regression"), {"samples": 1}, "samples.*1"),
    ((LINEAR, "regression"), {"warmup_epochs": 0.5}, "warmup_epochs.*0.5"),
    ((LINEAR, "regression"), {"scale": "max"}, "scale.*max"),
    (({"a": nn.Linear(64, 1000)}, "classification"), {}, r"heads\['a'\] has 1000 outputs on 64 features.*narrower"),
    (({"a": nn.Linear(512, 1000)}, "binary"), {}, r"heads\['a'\] has 1000 outputs on 512 features.*narrower"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), BAD)
def test_bad_arguments(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        excessmtl.BayesAgg(*arguments, **options)


def test_bad_steps():
    model = model_of()
    bayes = excessmtl.BayesAgg(model["heads"], KINDS)
    x, targets = batch_of()
    z = model["trunk"](x)
    for wrong, labels, message in (
        (z[:, :5], targets, r"z must be a tensor \[samples, 6 features\].*\(10, 5\)"),
        (z.detach(), targets, "z has no graph"),
        (z, [1], "targets must be a dict.*list"),
        (z, {"age": targets["churn"]}, "unknown task 'age'"),
        (z, {"price": None}, "targets has no task in it"),
        (z, {"price": targets["price"][:, 0]}, r"targets\['price'\] must be floats of shape \(10, 2\).*\(10,\)"),
        (z, {"class": targets["churn"]}, r"targets\['class'\] must be whole numbers"),
        (z, {"churn": targets["class"]}, r"targets\['churn'\] must be floats"),
    ):
        with pytest.raises(ValueError, match=message):
            bayes.backward(wrong, labels)
    assert bayes.steps == 0


def test_gradients_that_are_switched_off_do_not_starve_the_heads():
    model, twin = model_of(), model_of()
    x, targets = batch_of()
    z = model["trunk"](x)
    with torch.no_grad():
        excessmtl.BayesAgg(model["heads"], KINDS).backward(z, targets)
    sum_of_losses(twin, x, targets).backward()
    torch.testing.assert_close(gradients(model), gradients(twin))


def test_a_scaler_scales_gradients_and_nothing_else():
    model, twin = model_of(), model_of()
    x, targets = batch_of()
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=128.0)
    plain, scaled = excessmtl.BayesAgg(twin["heads"], KINDS), excessmtl.BayesAgg(model["heads"], KINDS)
    plain.backward(twin["trunk"](x), targets)
    step = scaled.backward(model["trunk"](x), targets, scaler=scaler)
    torch.testing.assert_close(gradients(model), [128 * gradient for gradient in gradients(twin)])
    torch.testing.assert_close(step.losses.sum(), sum_of_losses(twin, x, targets).detach())
    assert all(torch.equal(buffer, plain.get_buffer(name)) for name, buffer in scaled.named_buffers())


def test_a_state_inside_that_of_a_model_is_checked_too():
    model = model_of()
    inside = nn.ModuleDict({"bayes": excessmtl.BayesAgg(model["heads"], KINDS)})
    other = nn.ModuleDict({"bayes": excessmtl.BayesAgg(model["heads"], {**KINDS, "churn": "regression"})})
    inside.load_state_dict(inside.state_dict())
    with pytest.raises(ValueError, match="kinds"):
        inside.load_state_dict(other.state_dict())
