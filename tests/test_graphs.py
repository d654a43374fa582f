"""Any graph: what `backward` adds to `.grad` is what plain autograd gives for the weights in `step.weights`."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, embedding, mse_loss
from torch.utils.checkpoint import checkpoint

import excessmtl
from excessmtl.graph.places import Probe
from models import (
    BATCH,
    DEVICE,
    FEATURES,
    METHODS,
    OUTPUTS,
    PAPER,
    ROBUST,
    TASKS,
    UNIFORM,
    WIDTH,
    WITHOUT_Z,
    MultiTask,
    batch,
    check_backward,
    losses_of,
    mlp,
    needs_z,
    rule_of,
)

each_method = pytest.mark.parametrize("method", METHODS, ids=str)
a_few_methods = pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
both_forms = pytest.mark.parametrize("scalar", [False, True], ids=["backward", "scalar"])


def simple():
    model = mlp()
    x, targets = batch()
    return model, x, targets


@both_forms
@each_method
def test_shared_input(method, scalar):
    model, _, _ = simple()
    balancer = method.create(model.trunk)
    for _ in range(4):
        x, targets = batch()
        check_backward(balancer, losses_of(model(x), targets), model, model.trunk, scalar=scalar)


@each_method
def test_explicit_representation(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    z = model.trunk(x)
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk, at=z)


@each_method
def test_explicit_representation_with_a_parameter_list(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk.parameters())
    z = model.trunk(x)
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk, at=z)


@both_forms
@pytest.mark.parametrize("method", WITHOUT_Z, ids=str)
def test_parameter_list(method, scalar):
    model, _, _ = simple()
    balancer = method.create(list(model.trunk.parameters()))
    for _ in range(3):
        x, targets = batch()
        check_backward(balancer, losses_of(model(x), targets), model, model.trunk, scalar=scalar)


@pytest.mark.parametrize("heads", ["weighted", "unweighted"])
@each_method
def test_both_head_policies(method, heads):
    model, x, targets = simple()
    balancer = method.create(model.trunk, heads=heads, scale=3.0)
    check_backward(balancer, losses_of(model(x), targets), model, model.trunk)


@both_forms
@each_method
def test_own_inputs(method, scalar):
    model = mlp()
    balancer = method.create(model.trunk)
    for _ in range(3):
        losses, at = {}, {}
        for size, task in zip((4, 7, 5), TASKS, strict=True):
            x, targets = batch(size)
            at[task] = model.trunk(x)
            losses[task] = mse_loss(model.heads[task](at[task]), targets[task])
        check_backward(balancer, losses, model, model.trunk, scalar=scalar)
        losses = {task: mse_loss(model.heads[task](model.trunk(x)), targets[task]) for task in TASKS}
        check_backward(balancer, losses, model, model.trunk, scalar=scalar)


@each_method
def test_own_inputs_with_a_dict_of_representations(method):
    model = mlp()
    balancer = method.create(model.trunk)
    losses, at = {}, {}
    for size, task in zip((4, 7, 5), TASKS, strict=True):
        x, targets = batch(size)
        at[task] = model.trunk(x)
        losses[task] = mse_loss(model.heads[task](at[task]), targets[task])
    check_backward(balancer, losses, model, model.trunk, at=at)


@each_method
def test_a_loss_vector_computed_once_and_unbound(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    outputs = model(x)
    wanted = torch.cat([targets[task] for task in TASKS], 1)
    errors = (torch.cat([outputs[task] for task in TASKS], 1) - wanted).square().mean(0)
    vector = torch.stack([errors[:3].mean(), errors[3], errors[4:].mean()])
    losses = dict(zip(TASKS, vector.unbind(), strict=True))
    with pytest.warns(UserWarning, match="outside shared"):  # each loss reaches every head, with a zero gradient
        check_backward(balancer, losses, model, model.trunk)


@both_forms
@a_few_methods
def test_nodes_shared_above_the_representation(method, scalar):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    z = model.trunk(x)
    common = (z * 1.5).exp().clamp(max=3)
    losses = {task: mse_loss(model.heads[task](common), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk, scalar=scalar)


@a_few_methods
def test_a_loss_that_uses_another_tasks_output(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    outputs = model(x)
    losses = losses_of(outputs, targets)
    losses["b"] = losses["b"] + (outputs["a"].detach().sum() * outputs["b"]).mean()
    losses["c"] = losses["c"] + 0.1 * losses["b"]
    with pytest.warns(UserWarning, match="outside shared"):
        check_backward(balancer, losses, model, model.trunk)


@a_few_methods
def test_one_loss_under_two_names(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    losses = losses_of(model(x), targets)
    losses["b"] = losses["a"]
    with pytest.warns(UserWarning, match="outside shared"):
        check_backward(balancer, losses, model, model.trunk)


@each_method
def test_heads_of_any_shape(method):
    trunk = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
    heads = {
        "a": nn.Conv2d(12, 5, 1),
        "b": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)),
        "c": nn.Sequential(nn.Flatten(), nn.Linear(12 * 36, 8), nn.ReLU(), nn.Linear(8, 1)),
    }
    model = MultiTask(trunk, heads).to(DEVICE)
    x = torch.randn(4, 3, 6, 6, device=DEVICE)
    balancer = method.create(model.trunk)
    for _ in range(2):
        outputs = model(x)
        losses = {
            "a": cross_entropy(outputs["a"], torch.randint(5, (4, 6, 6), device=DEVICE)),
            "b": cross_entropy(outputs["b"], torch.randint(4, (4,), device=DEVICE)),
            "c": outputs["c"].square().mean(),
        }
        check_backward(balancer, losses, model, model.trunk)
    assert int(model.trunk[1].num_batches_tracked) == 2


@each_method
def test_shared_parameters_that_some_tasks_do_not_touch(method):
    class Trunk(nn.Module):
        def __init__(self):
            super().__init__()
            self.common, self.left, self.right = nn.Linear(FEATURES, 9), nn.Linear(9, WIDTH), nn.Linear(9, WIDTH)
            self.nobody = nn.Linear(3, 3)

        def forward(self, x):
            h = self.common(x).tanh()
            return self.left(h).tanh(), self.right(h).tanh()

    model = MultiTask(Trunk()).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    left, right = model.trunk(x)
    losses = {
        "a": mse_loss(model.heads["a"](left), targets["a"]),
        "b": mse_loss(model.heads["b"](right), targets["b"]),
        "c": mse_loss(model.heads["c"](left + right), targets["c"]),
    }
    check_backward(balancer, losses, model, model.trunk)


class Pyramid(nn.Module):
    """Representations of which one is computed from the other, as in every feature pyramid."""

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        low = self.low(x).tanh()
        return low, self.high(low).tanh()


@both_forms
@each_method
def test_a_representation_computed_from_another(method, scalar):
    model = MultiTask(Pyramid()).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    low, high = model.trunk(x)
    losses = {
        "a": mse_loss(model.heads["a"](low), targets["a"]),
        "b": mse_loss(model.heads["b"](high), targets["b"]),
        "c": mse_loss(model.heads["c"](low + high), targets["c"]),
    }
    check_backward(balancer, losses, model, model.trunk, scalar=scalar)


def test_gradnorm_sees_its_layer_below_several_representations():
    """What is stopped at a representation on the way to the others must still reach the layer."""
    found = []
    for by_module in (True, False):
        torch.manual_seed(1)
        model = MultiTask(Pyramid()).to(DEVICE)
        shared = model.trunk if by_module else list(model.trunk.parameters())
        balancer = excessmtl.create("gradnorm", tasks=TASKS, shared=shared, layer=model.trunk.low)
        x, targets = batch()
        low, high = model.trunk(x)
        losses = {task: 3**i * mse_loss(model.heads[task](low + high), targets[task]) for i, task in enumerate(TASKS)}
        balancer.backward(losses)
        found.append(balancer.state["weights"])  # for the next step
    assert found[0].std() > 0.01
    torch.testing.assert_close(*found)


def test_gradnorm_looks_at_what_is_trained_of_its_layer():
    found = []
    for whole in (True, False):
        model = mlp()
        model.trunk[0].weight.requires_grad_(False)
        layer = model.trunk[0] if whole else model.trunk[0].bias
        balancer = excessmtl.create("gradnorm", tasks=TASKS, shared=model.trunk, layer=layer)
        torch.manual_seed(2)
        x, targets = batch()
        balancer.backward(losses_of(model(x), targets))
        found.append(balancer.state["weights"])  # for the next step
    assert found[0].std() > 0
    torch.testing.assert_close(*found)
    with pytest.raises(ValueError, match="layer has no parameter that wants a gradient"):
        excessmtl.create("gradnorm", tasks=TASKS, shared=model.trunk, layer=model.trunk[0].weight)


@pytest.mark.parametrize("method", WITHOUT_Z, ids=str)
def test_shared_parameters_named_twice_count_once(method):
    found = []
    for times in (1, 2):
        model = mlp()
        balancer = method.create(list(model.trunk.parameters()) * times)
        torch.manual_seed(2)
        x, targets = batch()
        step = balancer.backward(losses_of(model(x), targets))
        found.append((step.weights, [parameter.grad for parameter in model.parameters()]))
    torch.testing.assert_close(*found)


class Complex(nn.Module):
    """The size of a complex product."""

    def __init__(self, features, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, features, dtype=torch.complex64))

    def forward(self, z):
        return (z.to(self.weight.dtype) @ self.weight.T).abs()


class Table(nn.Module):
    """A representation of things, not of samples."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(10, WIDTH))

    def forward(self):
        return self.rows * 2


@a_few_methods
def test_sparse_gradients_at_the_representation(method):
    model = MultiTask(Table()).to(DEVICE)
    balancer = method.create(model.trunk)
    z = model.trunk()
    seen = {task: torch.tensor([i, 5, 5], device=DEVICE) for i, task in enumerate(TASKS)}
    taken = {task: embedding(rows, z, sparse=True) + embedding(rows + 1, z, sparse=True) for task, rows in seen.items()}
    losses = {task: model.heads[task](rows).square().mean() for task, rows in taken.items()}
    check_backward(balancer, losses, model, model.trunk)


@each_method
def test_complex_heads(method):
    model = MultiTask(heads={task: Complex(WIDTH, outputs) for task, outputs in OUTPUTS.items()}).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    losses = losses_of(model(x), targets)
    parameters = [head.weight for head in model.heads.values()]
    plain = torch.autograd.grad(list(losses.values()), parameters, retain_graph=True)
    step = balancer.backward(losses)
    multipliers = torch.ones_like(step.weights) if balancer.heads == "unweighted" else step.weights
    for parameter, gradient, multiplier in zip(parameters, plain, multipliers, strict=True):
        torch.testing.assert_close(parameter.grad, gradient * multiplier)


@a_few_methods
def test_an_imaginary_part_that_is_not_finite_leaves_a_task_out(method):
    model = MultiTask(heads={task: Complex(WIDTH, outputs) for task, outputs in OUTPUTS.items()}).to(DEVICE)
    balancer = method.create(model.trunk)
    z = model.trunk(batch()[0])
    outputs = {task: head(z).mean() for task, head in model.heads.items()}
    imaginary = model.heads["b"].weight.imag.sum()
    step = balancer.backward({**outputs, "b": outputs["b"] + (imaginary - imaginary.detach()).sqrt()})
    assert step.skipped == ("b",)
    assert all(torch.view_as_real(head.weight.grad).isfinite().all() for head in model.heads.values())


@each_method
def test_complex_shared_parameters_are_refused_where_their_gradients_are_looked_at(method):
    model = MultiTask(nn.Sequential(Complex(FEATURES, WIDTH), nn.Tanh())).to(DEVICE)
    if rule_of(method).probe in (Probe.SHARED, Probe.LAYER):
        with pytest.raises(ValueError, match="complex"):
            method.create(model.trunk)
        return
    x, targets = batch()
    balancer = method.create(model.trunk)
    step = balancer.backward(losses_of(model(x), targets))
    assert step.skipped == ()
    assert torch.view_as_real(model.trunk[0].weight.grad).abs().sum((0, 1)).gt(0).all()


@a_few_methods
def test_an_explicit_tuple_of_nested_representations(method):
    model = MultiTask(Pyramid()).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    low, high = model.trunk(x)
    losses = {task: mse_loss(model.heads[task](low * high), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk, at=(low, high))


@a_few_methods
def test_a_recurrent_trunk_whose_every_output_is_used(method):
    trunk = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    model = MultiTask(trunk).to(DEVICE)
    balancer = method.create(model.trunk)
    targets = batch()[1]
    first = model.trunk(torch.randn(BATCH, WIDTH, device=DEVICE))
    second = model.trunk(first)
    losses = {task: mse_loss(model.heads[task](first + second), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk)


@each_method
def test_batch_norm(method):
    trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
    model = MultiTask(trunk).to(DEVICE)
    twin = copy.deepcopy(model)
    balancer = method.create(model.trunk)
    for _ in range(3):
        x, targets = batch()
        check_backward(balancer, losses_of(model(x), targets), model, model.trunk)
        twin(x)
    for one, other in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(one, other)


@each_method
def test_dropout_keeps_its_mask(method):
    trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3))
    heads = {task: nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, OUTPUTS[task])) for task in TASKS}
    model = MultiTask(trunk, heads).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    losses = losses_of(model(x), targets)
    before = torch.get_rng_state()
    check_backward(balancer, losses, model, model.trunk)
    assert torch.equal(before, torch.get_rng_state())


@both_forms
@each_method
def test_sequence_outputs_of_an_lstm(method, scalar):
    model = MultiTask(nn.LSTM(FEATURES, WIDTH, batch_first=True)).to(DEVICE)
    balancer = method.create(model.trunk)
    x = torch.randn(BATCH, 5, FEATURES, device=DEVICE)
    output, _ = model.trunk(x)
    losses = {
        "a": model.heads["a"](output).square().mean(),
        "b": model.heads["b"](output[:, -1]).square().mean(),
        "c": model.heads["c"](output.mean(1)).abs().mean(),
    }
    check_backward(balancer, losses, model, model.trunk, scalar=scalar)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@a_few_methods
def test_last_state_of_a_recurrent_trunk(method, kind):
    model = MultiTask(kind(FEATURES, WIDTH, num_layers=2)).to(DEVICE)
    options = {"batch_dim": 1} if method is ROBUST else {}
    balancer = method.create(model.trunk, **options)
    hidden = model.trunk(torch.randn(5, BATCH, FEATURES, device=DEVICE))[1]
    last = (hidden[0] if isinstance(hidden, tuple) else hidden)[-1]
    losses = {task: model.heads[task](last).square().mean() for task in TASKS}
    check_backward(balancer, losses, model, model.trunk)


@a_few_methods
def test_last_state_and_outputs_of_a_recurrent_trunk(method):
    model = MultiTask(nn.GRU(FEATURES, WIDTH)).to(DEVICE)
    options = {"batch_dim": 1} if method is ROBUST else {}
    balancer = method.create(model.trunk, **options)
    outputs, hidden = model.trunk(torch.randn(5, BATCH, FEATURES, device=DEVICE))
    losses = {task: model.heads[task](outputs[0] + hidden[-1]).square().mean() for task in TASKS}
    check_backward(balancer, losses, model, model.trunk)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@each_method
def test_embeddings(method, sparse):
    trunk = nn.Sequential(nn.Embedding(11, WIDTH, sparse=sparse), nn.Tanh())
    model = MultiTask(trunk).to(DEVICE)
    balancer = method.create(model.trunk)
    tokens = torch.randint(11, (BATCH, 4), device=DEVICE)
    losses = {task: output.square().mean() for task, output in model(tokens).items()}
    check_backward(balancer, losses, model, model.trunk)


@a_few_methods
def test_a_head_with_sparse_embeddings(method):
    model, x, targets = simple()
    model.table = nn.Embedding(7, 3, sparse=True).to(DEVICE)
    balancer = method.create(model.trunk)
    losses = losses_of(model(x), targets)
    losses["a"] = losses["a"] + model.table(torch.tensor([1, 2, 2], device=DEVICE)).square().mean()
    check_backward(balancer, losses, model, model.trunk)


@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, WIDTH), (BATCH, 5, WIDTH), (BATCH, 4, 3, 3), (BATCH, 2, 3, 2, 2)])
@each_method
def test_representations_of_any_shape(method, shape):
    size = torch.Size(shape[1:]).numel()
    trunk = nn.Sequential(
        nn.Linear(FEATURES, size), nn.Tanh(), nn.Unflatten(1, shape[1:]) if len(shape) > 2 else nn.Identity()
    )
    if len(shape) == 1:
        trunk = nn.Sequential(nn.Linear(FEATURES, 1), nn.Flatten(0))
    heads = {task: nn.Linear(size, OUTPUTS[task]) for task in TASKS}
    model = MultiTask(trunk, heads).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = model.trunk(x)
    assert z.shape == shape
    losses = {task: mse_loss(model.heads[task](z.reshape(BATCH, -1)), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk)


@each_method
def test_a_forward_for_validation_between_forward_and_backward(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    losses = losses_of(model(x), targets)
    others = losses_of(model(torch.randn_like(x)), targets)
    with torch.no_grad():
        model(torch.randn_like(x))
    check_backward(balancer, losses, model, model.trunk)
    check_backward(balancer, others, model, model.trunk)


@both_forms
@a_few_methods
def test_called_under_no_grad(method, scalar):
    model, x, targets = simple()
    parameters = list(model.parameters())
    balancer = method.create(model.trunk)
    losses = losses_of(model(x), targets)
    twin_model, twin_balancer = copy.deepcopy((model, balancer))
    if scalar:
        twin_balancer(losses_of(twin_model(x), targets)).backward()
    else:
        twin_balancer.backward(losses_of(twin_model(x), targets))
    with torch.no_grad():
        if scalar:
            balancer(losses).backward()
        else:
            balancer.backward(losses)
    for one, other in zip(parameters, twin_model.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


@a_few_methods
def test_adds_to_what_is_there(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    twin_model, twin_balancer = copy.deepcopy((model, balancer))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    kept = [p.grad for p in model.parameters()]
    balancer.backward(losses_of(model(x), targets))
    twin_balancer.backward(losses_of(twin_model(x), targets))
    for one, other, old in zip(model.parameters(), twin_model.parameters(), kept, strict=True):
        torch.testing.assert_close(one.grad, 1 + other.grad)
        assert one.grad is old


@pytest.mark.parametrize("method", WITHOUT_Z, ids=str)
def test_gradients_share_no_memory(method):
    """Two parameters that are added get one and the same gradient from autograd; in-place clipping must not see it."""

    class Trunk(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(4, 5))

    model = nn.ModuleDict({"trunk": Trunk()}).to(DEVICE)
    trunk = model["trunk"]
    balancer = method.create(list(trunk.parameters()), tasks=["a", "b"])
    for repeat in (1, 2):
        z = trunk.one + trunk.two
        balancer.backward({"a": z.sum(), "b": z.square().sum()})
        assert trunk.one.grad.data_ptr() != trunk.two.grad.data_ptr(), f"call {repeat}"
    trunk.one.grad.mul_(0)
    assert trunk.two.grad.abs().sum() > 0


@pytest.mark.parametrize("method", WITHOUT_Z, ids=str)
def test_an_expanded_gradient_can_be_added_to(method):
    bias = nn.Parameter(torch.randn(5, device=DEVICE))
    other = nn.Parameter(torch.randn(5, device=DEVICE))
    balancer = method.create([bias], tasks=["a", "b"])
    for _ in range(2):
        balancer.backward({"a": bias.sum() + other.sum(), "b": bias.square().sum()})
    bias.grad.mul_(2)
    other.grad.mul_(2)


@each_method
def test_only_logits_survive_the_forward(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    check_backward(balancer, losses_of(model(x), targets), model, model.trunk)


@each_method
def test_frozen_shared_parameters(method):
    trunk = nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, WIDTH), nn.Tanh())
    model = MultiTask(trunk).to(DEVICE)
    model.trunk[0].requires_grad_(False)
    model.trunk[2].bias.requires_grad_(False)
    balancer = method.create(model.trunk)
    x, targets = batch()
    check_backward(balancer, losses_of(model(x), targets), model, model.trunk)
    model.trunk.requires_grad_(True)
    check_backward(balancer, losses_of(model(x), targets), model, model.trunk)


@both_forms
@pytest.mark.parametrize("change", ["relu_", "neg_"])
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
@a_few_methods
def test_in_place_change_of_the_representation(method, scalar, alive, change):
    model = MultiTask(nn.Linear(FEATURES, WIDTH)).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = model.trunk(x)
    getattr(z, change)()
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    if not alive:
        del z
    if balancer.rule.per_sample:  # it needs the values that were overwritten, and says so
        with pytest.raises(ValueError, match="changed in place"):
            balancer.backward(losses)
        return
    check_backward(balancer, losses, model, model.trunk, scalar=scalar)


def test_in_place_change_does_not_falsify_the_statistics():
    model = MultiTask(nn.Linear(FEATURES, WIDTH)).to(DEVICE)
    balancer = ROBUST.create(model.trunk)
    twin_model, twin = copy.deepcopy((model, balancer))
    x, targets = batch()
    z = model.trunk(x).mul_(3.0)
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    with pytest.raises(ValueError, match="changed in place"):
        balancer.backward(losses)
    assert torch.equal(balancer.state["signal"], twin.state["signal"])
    balancer.backward(losses, at=z)
    z = twin_model.trunk(x) * 3.0
    losses = {task: mse_loss(twin_model.heads[task](z), targets[task]) for task in TASKS}
    twin.backward(losses, at=z)
    torch.testing.assert_close(balancer.state["signal"], twin.state["signal"])


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
@both_forms
@a_few_methods
def test_losses_of_one_element(method, shape, scalar):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    losses = {task: loss.reshape(shape) for task, loss in losses_of(model(x), targets).items()}
    check_backward(balancer, losses, model, model.trunk, scalar=scalar)


@pytest.mark.parametrize("given", [False, True], ids=["hook", "at"])
@both_forms
@a_few_methods
def test_a_checkpointed_trunk(method, scalar, given):
    trunk = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH))
    model = MultiTask(trunk).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = checkpoint(model.trunk, x, use_reentrant=False)
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk, scalar=scalar, **({"at": z} if given else {}))


@a_few_methods
def test_a_trunk_with_a_checkpointed_block(method):
    class Trunk(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = nn.Linear(FEATURES, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

        def forward(self, x):
            return checkpoint(self.block, self.first(x), use_reentrant=False).tanh()

    model = MultiTask(Trunk()).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    check_backward(balancer, losses_of(model(x), targets), model, model.trunk)


def test_a_reentrant_checkpoint_with_a_representation():
    """Its graph does not show the parameters, but the trunk is walked by an ordinary backward."""
    model, x, targets = simple()
    x.requires_grad_()
    balancer = ROBUST.create(model.trunk)
    z = checkpoint(model.trunk, x, use_reentrant=True)
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    step = balancer.backward(losses, at=z)
    z = model.trunk(x)
    again = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    total = sum(w * loss for w, loss in zip(step.weights, again.values(), strict=True))
    wanted = torch.autograd.grad(total, list(model.trunk.parameters()))
    for parameter, gradient in zip(model.trunk.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@a_few_methods
def test_a_trunk_that_returns_a_dict(method):
    class Trunk(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(FEATURES, WIDTH)

        def forward(self, x):
            return {"features": [self.body(x).tanh()], "size": len(x)}

    model = MultiTask(Trunk()).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = model.trunk(x)["features"][0]
    losses = {task: mse_loss(model.heads[task](z), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk)


@a_few_methods
def test_a_task_that_reaches_its_head_only(method):
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    z = model.trunk(x)
    losses = {task: mse_loss(model.heads[task](z.detach() if task == "b" else z), targets[task]) for task in TASKS}
    check_backward(balancer, losses, model, model.trunk)


@a_few_methods
def test_an_input_that_wants_a_gradient(method):
    model, x, targets = simple()
    x.requires_grad_()
    balancer = method.create(model.trunk)
    step = balancer.backward(losses_of(model(x), targets))
    again = losses_of(model(x), targets)
    (wanted,) = torch.autograd.grad(sum(w * again[t] for t, w in zip(TASKS, step.weights, strict=True)), x)
    torch.testing.assert_close(x.grad, wanted)


@each_method
def test_double_precision_is_kept(method):
    model = mlp().double()
    x, targets = batch()
    targets = {task: target.double() for task, target in targets.items()}
    balancer = method.create(model.trunk)
    check_backward(balancer, losses_of(model(x.double()), targets), model, model.trunk, rtol=1e-6)


@each_method
def test_the_graph_is_freed(method):
    """As `loss.backward()` does: a loop that keeps `losses` alive must not keep the activations.

    Not so for methods that read losses only and know no representation: their one backward keeps the graph, to find
    the task at fault when something in it is not finite (`gradients/losses_only.py`).
    """
    for shared in ("module", "list"):
        model = mlp()
        if shared == "list" and (needs_z(method) or rule_of(method).probe is Probe.LOSSES):
            continue
        balancer = method.create(model.trunk if shared == "module" else list(model.trunk.parameters()))
        x, targets = batch()
        losses = losses_of(model(x), targets)
        balancer.backward(losses)
        for task, loss in losses.items():
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
            assert task


@pytest.mark.parametrize("method", [method for method in METHODS if method.name != "gradnorm"], ids=str)
def test_the_representation_is_freed(method):
    """Whoever keeps `losses` until the next forward must not keep a large map as well.

    GradNorm does: it walks from the losses into the trunk, which is needed once more, and so keeps the heads' graph.
    """
    heads = {task: nn.Conv2d(4, 1, 1) for task in TASKS}
    model = MultiTask(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()), heads).to(DEVICE)
    balancer = method.create(model.trunk)
    for _ in range(2):  # the exact mode keeps the first graph
        z = model.trunk(torch.randn(BATCH, 1, 5, 5, device=DEVICE))
        memory = z.untyped_storage()._weak_ref()
        losses = {task: head(z).square().mean() for task, head in model.heads.items()}
        del z
        balancer.backward(losses)
        expired = torch.UntypedStorage._expired(memory)
        torch.UntypedStorage._free_weak_ref(memory)
    assert expired, f"{len(losses)} losses are alive"


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_graph_is_freed_with_own_inputs(method):
    model = mlp()
    balancer = method.create(model.trunk)
    losses = {}
    for task in TASKS:
        x, targets = batch()
        losses[task] = mse_loss(model.heads[task](model.trunk(x)), targets[task])
    balancer.backward(losses)
    for loss in losses.values():
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


@each_method
def test_another_default_device(method):
    """With `torch.set_default_device` somewhere else, nothing of ours may land there."""
    model, x, targets = simple()
    balancer = method.create(model.trunk)
    losses = losses_of(model(x), targets)
    from excessmtl.excess.adapter import _gaussian

    _gaussian.cache_clear()
    with torch.device("meta"):
        step = balancer.backward(losses)
    assert step.weights.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("tasks", [["only"], [str(i) for i in range(12)]], ids=["one", "twelve"])
@each_method
def test_any_number_of_tasks(method, tasks):
    model = MultiTask(heads={task: nn.Linear(WIDTH, 2) for task in tasks}).to(DEVICE)
    balancer = method.create(model.trunk, tasks=tasks)
    for _ in range(3):
        outputs = model(torch.randn(BATCH, FEATURES, device=DEVICE))
        losses = {task: (output - 1).square().mean() for task, output in outputs.items()}
        check_backward(balancer, losses, model, model.trunk)


@each_method
def test_a_representation_wider_than_the_sketch(method):
    trunk = nn.Sequential(nn.Linear(FEATURES, 100), nn.Tanh())
    model = MultiTask(trunk, {task: nn.Linear(100, OUTPUTS[task]) for task in TASKS}).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    check_backward(balancer, losses_of(model(x), targets), model, model.trunk)


def test_sketch_of_a_task_does_not_depend_on_the_others():
    """`b` reads two tensors, `a` one of them: what is remembered of `b` is the same with and without `a`."""
    model = MultiTask(Pyramid()).to(DEVICE)
    x, targets = batch()
    states = []
    for present in (True, False):
        balancer = ROBUST.create(model.trunk)
        low, high = model.trunk(x)
        losses = {"b": mse_loss(model.heads["b"](low), targets["b"]) + model.heads["b"](high).mean()}
        if present:
            losses["a"] = mse_loss(model.heads["a"](low), targets["a"])
        balancer.backward(losses)
        states.append(balancer.state["signal"][1])
    torch.testing.assert_close(*states)
