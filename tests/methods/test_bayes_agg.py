"""BayesAgg: what a step leaves in `.grad`, missing labels, bad tasks, mistakes. The oracle has its arithmetic."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

import excessmtl
from excessmtl.gradients.task_gradients import Sample
from excessmtl.methods.bayes_agg import BayesAgg
from excessmtl.methods.last_layer import evidence, posterior, sampled_moments, slopes
from excessmtl.methods.observation import Observation
from models import DEVICE
from steps import gradients
from test_no_host_reads import NoHostReads

KINDS = {"price": "regression", "class": "classification", "churn": "binary"}
LOSSES = {"price": mse_loss, "class": cross_entropy, "churn": binary_cross_entropy_with_logits}


def model_of(heads=None):
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 6), nn.Tanh())
    heads = heads or {"price": nn.Linear(6, 2), "class": nn.Linear(6, 3), "churn": nn.Linear(6, 1, bias=False)}
    return nn.ModuleDict({"trunk": trunk, "heads": nn.ModuleDict(heads)}).to(DEVICE)


def made(model, kinds=KINDS, **options):
    heads = model["heads"]
    return excessmtl.create("bayes_agg", list(heads), model["trunk"], layers=heads, kinds=kinds, **options)


def batch_of(seed=0, samples=10):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=generator)
    targets = {
        "price": torch.randn(samples, 2, generator=generator),
        "class": torch.randint(0, 3, (samples,), generator=generator),
        "churn": torch.randint(0, 2, (samples, 1), generator=generator).float(),
    }
    return x.to(DEVICE), {task: target.to(DEVICE) for task, target in targets.items()}


def labelled(target):
    return target >= 0 if target.dtype == torch.int64 else target.isfinite().all(1)


def losses_of(model, x, targets):
    """Means over the samples with a label."""
    z = model["trunk"](x)
    return {t: LOSSES[t](model["heads"][t](z)[labelled(y)], y[labelled(y)]) for t, y in targets.items()}


def backward(balancer, model, x, targets, **more):
    return balancer.backward(losses_of(model, x, targets), targets=targets, **more)


def trained(balancer, model):
    """Statistics of an epoch; no optimiser."""
    for seed in range(100, 103):
        backward(balancer, model, *batch_of(seed))
    balancer.end_epoch()
    model.zero_grad()
    return balancer


def test_without_layers_all_tasks_count_alike_and_a_warning_says_so():
    model, twin = model_of(), model_of()
    with pytest.warns(UserWarning, match=r"bayes_agg has no layers.*layers=\{task: its last nn.Linear\}"):
        balancer = excessmtl.create("bayes_agg", tasks=list(KINDS), shared=model["trunk"])
    for _ in range(2):
        model.zero_grad()
        assert balancer.backward(losses_of(model, *batch_of())).weights.tolist() == [1, 1, 1]
        balancer.end_epoch()
    sum(losses_of(twin, *batch_of()).values()).backward()
    torch.testing.assert_close(gradients(model), gradients(twin))
    with pytest.raises(ValueError, match="targets is used with layers only"):
        backward(balancer, model, *batch_of())


def test_samples_without_a_label_say_nothing_and_get_nothing():
    """Holes in the labels are as if each task had been given its labelled samples alone; a mask is a hole too."""
    model = model_of()
    x, targets = batch_of()
    targets["price"][:4, 0], targets["class"][5], targets["churn"][3:7] = torch.nan, -1, torch.nan
    for target, missing in ((targets["price"], torch.nan), (targets["class"], -100), (targets["churn"], torch.nan)):
        target[9] = missing
    mask = {"class": torch.arange(10, device=DEVICE) != 7}
    balancer = trained(made(model), model)
    z = model["trunk"](x).detach().requires_grad_()
    heads = {"price": slice(4, 9), "class": [0, 1, 2, 3, 4, 6, 8], "churn": [0, 1, 2, 7, 8]}
    losses = {task: LOSSES[task](model["heads"][task](z[rows]), targets[task][rows]) for task, rows in heads.items()}
    balancer.backward(losses, at=z, targets=targets, mask=mask)
    assert z.grad.isfinite().all()
    assert not z.grad[9].any()
    for place, (task, rows) in enumerate(heads.items()):
        alone = made(model)
        backward(alone, model, x[rows], {task: targets[task][rows]})
        name = f"new_precision_{place}"
        torch.testing.assert_close(balancer.state[name], alone.state[name])


def test_a_bad_posterior_leaves_its_task_out_and_the_others_as_they_are():
    """The loss is finite, and its square is not."""
    model, twin = model_of(), model_of()
    balancer, other = (trained(made(one, power=0.0), one) for one in (model, twin))
    x, targets = batch_of()
    before = balancer.state["new_precision_0"].clone()
    step = backward(balancer, model, x, {**targets, "price": 1e18 * targets["price"]})
    alone = backward(other, twin, x, {task: targets[task] for task in ("class", "churn")})
    torch.testing.assert_close(step.weights[1:], alone.weights[1:])
    assert step.weights[0] == 0
    torch.testing.assert_close(gradients(model["trunk"]), gradients(twin["trunk"]))
    assert torch.equal(balancer.state["new_precision_0"], before)


def test_where_nobody_ends_an_epoch_so_many_steps_are_one():
    model = model_of()
    told, counting = made(model), made(model, window=2)
    for number in range(4):
        steps = [backward(balancer, model, *batch_of(number)) for balancer in (told, counting)]
        assert torch.equal(*(step.weights for step in steps))
        if number == 1:
            told.end_epoch()
    assert float(steps[0].weights.max()) > 1.01
    assert torch.equal(told.state["precision_0"], counting.state["precision_0"])


def test_a_task_without_labels_for_an_epoch_keeps_what_is_known():
    model = model_of()
    balancer = trained(made(model), model)
    before = {name: value.clone() for name, value in balancer.state.items()}
    x, targets = batch_of()
    backward(balancer, model, x, {"price": targets["price"]})
    balancer.end_epoch()
    assert torch.equal(balancer.state["precision_1"], before["precision_1"])
    assert not torch.equal(balancer.state["precision_0"], before["precision_0"])


def test_processes_share_one_posterior():
    """Two processes with the same batch are one with the batch twice; one without a task's labels takes part too."""
    model = model_of()
    rule = BayesAgg(layers=model["heads"], kinds=KINDS, warmup_epochs=0).bind(list(KINDS))
    x, targets = batch_of()
    z = model["trunk"](x).detach()

    def decision(times, reduction, tasks=(0, 1, 2)):
        leaf = z.repeat(times, 1).requires_grad_()
        own = {task: target.repeat(times, *[1] * (target.ndim - 1)) for task, target in targets.items()}
        losses = {task: LOSSES[task](model["heads"][task](leaf), own[task]) for task in KINDS}
        dz = [torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in losses.values()]
        seen = Observation(
            losses=torch.stack([loss.detach() for loss in losses.values()]),
            ok=torch.ones(3, dtype=torch.bool, device=DEVICE),
            samples=lambda task: [Sample(leaf.detach(), dz[task])] if task in tasks else [],
            extras={"targets": own},
            reduction=reduction,
        )
        return rule.update({name: value.to(DEVICE) for name, value in rule.init(3, []).items()}, seen)

    several, alone = decision(1, lambda numbers: 2 * numbers), decision(2, lambda numbers: numbers)
    torch.testing.assert_close(several.weights, alone.weights)
    torch.testing.assert_close(several.direction, 2 * alone.direction[:10])
    torch.testing.assert_close(several.state, alone.state)
    summed = []
    for tasks in ((0, 1, 2), (0, 2)):
        shapes = []
        decision(1, lambda numbers, shapes=shapes: (shapes.append(numbers.shape), numbers)[1], tasks)
        summed.append(shapes)
    assert summed[0] == summed[1]


def test_a_state_of_other_layers_or_kinds_is_refused_by_name():
    model = model_of()
    state = trained(made(model), model).state_dict()
    for heads, kinds, option in (
        (None, {**KINDS, "churn": "regression"}, "kinds"),
        ({task: nn.Linear(6, 3) for task in KINDS}, KINDS, "layers"),
    ):
        with pytest.raises(ValueError, match=f"state was saved with {option}="):
            made(model_of(heads), kinds=kinds).load_state_dict(state)
    made(copy.deepcopy(model)).load_state_dict(state)


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_host_never_waits_for_the_device(warmup):
    model = model_of()
    balancer = made(model, warmup_epochs=warmup, samples=4)
    x, targets = batch_of()
    losses = losses_of(model, x, targets)
    with NoHostReads():
        balancer.backward(losses, targets=targets)
        balancer.end_epoch()


def test_layers_belong_to_the_model_and_statistics_are_never_rounded():
    model = model_of()
    balancer = made(model).to(torch.bfloat16)
    assert balancer.state["precision_0"].dtype == torch.float32
    assert model["heads"]["price"].weight.dtype == torch.float32
    assert not list(balancer.parameters())
    assert not any("weight" in key.split(".") for key in balancer.state_dict())
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert backward(balancer, model, *batch_of()).losses.isfinite().all()


HEADS = {"a": nn.Linear(6, 1), "b": nn.Linear(6, 3)}
BAD = [
    ({"layers": [nn.Linear(6, 1)]}, r"layers must be a dict with the last layer of each of \['a', 'b'\]"),
    ({"layers": {"a": nn.Linear(6, 1)}}, r"layers must be a dict.*found \['a'\]"),
    ({"layers": {**HEADS, "a": nn.ReLU()}}, r"layers\['a'\].*nn.Linear.*ReLU"),
    ({"layers": {**HEADS, "b": nn.Linear(5, 1)}}, r"layers\['b'\] has 5 inputs"),
    ({"layers": HEADS, "kinds": "ranking"}, r"kinds\['a'\].*'ranking'"),
    ({"layers": HEADS, "kinds": {"a": "binary"}}, "kinds must name each task once"),
    ({"layers": HEADS, "kinds": "classification"}, r"layers\['a'\] has one output"),
    ({"layers": {**HEADS, "b": nn.Linear(6, 5000)}, "kinds": ["binary", "classification"]}, r"layers\['b'\].*narrower"),
    ({"layers": {**HEADS, "b": nn.Linear(6, 2_000_000)}, "kinds": "binary"}, r"layers\['b'\] has 2000000.*narrower"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_layers_and_kinds(options, message):
    with pytest.raises(ValueError, match=message):
        excessmtl.create("bayes_agg", tasks=["a", "b"], shared=nn.Linear(2, 6), **options)


def test_bad_steps_change_nothing():
    model = model_of()
    balancer = made(model)
    before = balancer.state_dict()
    x, targets = batch_of()
    for wrong, message in (
        (None, r"bayes_agg needs the labels of the batch.*pass targets=\{task: labels\}"),
        ([1], "found targets of type list"),
        ({**targets, "age": targets["churn"]}, "targets names unknown task 'age'"),
        ({"price": targets["price"]}, r"targets\['class'\] must be whole numbers.*NoneType"),
        (
            {**targets, "price": targets["price"][:, 0]},
            r"targets\['price'\] must be floats of shape \(10, 2\).*\(10,\)",
        ),
        ({**targets, "class": targets["churn"]}, r"targets\['class'\] must be whole numbers"),
        ({**targets, "churn": targets["class"]}, r"targets\['churn'\] must be floats"),
    ):
        with pytest.raises(ValueError, match=message):
            balancer.backward(losses_of(model, x, targets), targets=wrong)
    z = {task: model["trunk"](x) for task in KINDS}
    losses = {task: LOSSES[task](model["heads"][task](z[task]), targets[task]) for task in KINDS}
    with pytest.raises(ValueError, match="they do not all see one tensor"):
        balancer.backward(losses, targets=targets)
    narrow = {task: nn.Linear(5, head.out_features) for task, head in model["heads"].items()}
    other = excessmtl.create("bayes_agg", tasks=list(KINDS), shared=model["trunk"], layers=narrow, kinds=KINDS)
    with pytest.raises(ValueError, match=r"the representation must be \[samples, 5\].*\(10, 6\)"):
        other.backward(losses_of(model, x, targets), targets=targets)
    assert all(torch.equal(value, before[key]) for key, value in balancer.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# ------------------------------------------------------------------ the posterior of a binary last layer
# `oracles/bayesian.py` has the other kinds.

PRIOR, OUTPUTS, DRAWS = 0.5, 2, 100_000


def data(samples, features):
    """x with a column of ones, a last layer and labels, in double precision."""
    torch.manual_seed(0)
    x = torch.cat((torch.randn(samples, features), torch.ones(samples, 1)), 1).double()
    return x, torch.randn(OUTPUTS, features + 1).double(), (torch.randn(samples, OUTPUTS) > 0).double()


def test_the_posterior_is_one_newton_step_of_its_log_density():
    """Precision: the second derivative at the present weights. Mean: what Newton's method steps to from there."""
    x, weight, y = data(12, 3)

    def minus_log_density(flat):
        loss = binary_cross_entropy_with_logits(x @ flat.reshape(weight.shape).T, y, reduction="sum")
        return loss + flat.square().sum() / (2 * PRIOR)

    flat = weight.flatten().requires_grad_()
    hessian = torch.autograd.functional.hessian(minus_log_density, flat).numpy()
    (slope,) = torch.autograd.grad(minus_log_density(flat), flat)
    computed = posterior(evidence("binary", x, weight, y), PRIOR)
    np.testing.assert_allclose(torch.block_diag(*(computed.factor @ computed.factor.mT)), hessian, rtol=1e-9, atol=1e-9)
    expected = flat.detach().numpy() - np.linalg.solve(hessian, slope.numpy())
    np.testing.assert_allclose(computed.mean.flatten(), expected, rtol=1e-9)


def test_moments_are_those_of_many_draws_of_the_last_layer():
    """Draws by numpy from the mean and the covariance, and the gradients that each of them has."""
    x, weight, y = data(4, 2)
    computed = posterior(evidence("binary", x, weight, y), PRIOR)
    generator = np.random.default_rng(0)
    pairs = zip(computed.mean.numpy(), torch.cholesky_inverse(computed.factor).numpy(), strict=True)
    layers = torch.as_tensor(np.stack([generator.multivariate_normal(m, s, DRAWS) for m, s in pairs], 1))
    gradients = slopes("binary", x @ layers.mT, y) @ layers[..., :2]
    moments = sampled_moments("binary", computed, x, y, 2, DRAWS, torch.Generator().manual_seed(1))
    assert ((moments.mean - gradients.mean(0)).abs() < 9 * gradients.std(0) / DRAWS**0.5).all()
    torch.testing.assert_close(moments.variance, gradients.var(0), rtol=0.05, atol=1e-6)


def test_moments_do_not_depend_on_how_many_draws_are_looked_at_at_once(monkeypatch):
    x, weight, y = data(12, 3)
    computed = posterior(evidence("binary", x, weight, y), PRIOR)
    whole = sampled_moments("binary", computed, x, y, 3, 50, torch.Generator().manual_seed(1))
    monkeypatch.setattr("excessmtl.methods.last_layer._AT_ONCE", 7 * 12 * 3)
    parts = sampled_moments("binary", computed, x, y, 3, 50, torch.Generator().manual_seed(1))
    torch.testing.assert_close(tuple(whole), tuple(parts))
