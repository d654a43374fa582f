"""Seven ways to get `shared` wrong: each is told in a sentence of its own, and nothing has changed afterwards."""

import copy

import pytest
import torch
from torch import nn

import excessmtl
from choices import GRADNORM, METHODS, PAPER, PAPER_Z, ROBUST, UNIFORM, Method, needs_z
from excessmtl.graph.problems import SECOND_BACKWARD
from models import BATCH, DEVICE, FEATURES, TASKS, WIDTH, MultiTask, batch, losses_of, mlp
from steps import check_backward, refused, started

AT_Z = pytest.mark.parametrize("method", [ROBUST, PAPER_Z], ids=str)
EVERYWHERE = pytest.mark.parametrize("method", [ROBUST, UNIFORM, PAPER, GRADNORM], ids=str)
FORMS = pytest.mark.parametrize("form", ["backward", "forward"])


class Encoder(nn.Module):
    """A trunk with a second way in."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, WIDTH)

    def encode(self, x):
        return self.layer(x).tanh()

    def forward(self, x):
        return self.encode(x)


@FORMS
@AT_Z
def test_the_whole_model(method, form):
    model = mlp()
    message = refused(method.create(model), model, model.losses(), form=form)
    assert message.startswith("shared (MultiTask) is the whole model: a parameter in it, of shape (3, 16), is used by")
    assert "z='encoder'" in message


@AT_Z
def test_the_whole_model_of_which_parts_were_called(method):
    model = mlp()
    balancer = method.create(model)
    x, targets = batch()
    z = model.trunk(x)
    message = refused(balancer, model, losses_of({task: model.heads[task](z) for task in TASKS}, targets))
    assert message.startswith("shared (MultiTask) is the whole model")


class WithLosses(MultiTask):
    """Returns its losses, as the models of Hugging Face do."""

    def forward(self, x, targets):
        return losses_of(super().forward(x), targets)


@AT_Z
def test_the_whole_model_which_returns_losses(method):
    model = WithLosses().to(DEVICE)
    message = refused(method.create(model), model, model(*batch()))
    assert message.startswith("shared (WithLosses) is the whole model: the losses are its own outputs")
    check_backward(method.create(model, z="trunk"), model(*batch()), model, model.trunk)


@pytest.mark.parametrize("method", [PAPER, GRADNORM], ids=str)
def test_a_method_on_all_parameters_warns_of_the_whole_model(method):
    model = mlp()
    balancer = method.create(model)
    x, targets = batch()
    with pytest.warns(UserWarning, match="is the whole model") as caught:
        balancer.backward(losses_of(model(x), targets))
    assert caught[0].filename == __file__
    balancer.backward(losses_of(model(x), targets))  # and once is enough


def test_a_method_that_is_about_the_whole_model_does_not_warn_of_it():
    model = mlp()
    check_backward(Method("forum").create(model), model.losses(), model, model)


@AT_Z
def test_one_network_for_all_domains_is_no_mistake(method):
    """Every task has inputs of its own and uses all parameters: outputs are what they share."""
    network = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2)).to(DEVICE)
    balancer = method.create(network)
    losses = {task: network(torch.randn(BATCH, FEATURES, device=DEVICE)).square().mean() for task in TASKS}
    check_backward(balancer, losses, network, network)


@AT_Z
def test_a_trunk_with_parts_for_single_tasks_is_no_mistake(method):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.common = nn.Linear(FEATURES, WIDTH)
            self.adapters = nn.ModuleDict({task: nn.Linear(WIDTH, WIDTH) for task in TASKS})

        def forward(self, x, task):
            return self.adapters[task](self.common(x).tanh())

    model = MultiTask(Adapted()).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    outputs = {task: model.heads[task](model.trunk(x, task)) for task in TASKS}
    check_backward(balancer, losses_of(outputs, targets), model, model.trunk)


@AT_Z
def test_a_container_whose_members_are_not_called(method):
    model = MultiTask(nn.ModuleList([nn.Linear(FEATURES, WIDTH), nn.Linear(FEATURES, WIDTH)])).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()
    z = torch.stack([x @ layer.weight.T for layer in model.trunk]).mean(0)
    message = refused(balancer, model, losses_of({task: model.heads[task](z) for task in TASKS}, targets))
    assert "none of the 2 modules in shared (ModuleList) was called" in message


@AT_Z
def test_a_method_of_the_encoder_in_place_of_a_call(method):
    model = MultiTask(Encoder()).to(DEVICE)
    balancer = method.create(model.trunk)
    x, targets = batch()

    def losses():
        z = model.trunk.encode(x)
        return losses_of({task: model.heads[task](z) for task in TASKS}, targets), z

    message = refused(balancer, model, losses()[0])
    assert "shared (Encoder) was not called" in message
    assert "encoder.encode(x)" in message
    given, z = losses()
    balancer.backward(given, at=z)
    check_backward(method.create([model.trunk.layer]), losses()[0], model, model.trunk)


@FORMS
@EVERYWHERE
def test_a_frozen_encoder(method, form):
    model = mlp()
    model.trunk.requires_grad_(False)
    balancer = method.create(model.trunk)
    x, targets = batch()
    for needs_input_gradient in (False, True):
        message = refused(balancer, model, losses_of(model(x.requires_grad_(needs_input_gradient)), targets), form=form)
        assert message.startswith("shared (Sequential) is frozen: none of its 2 parameters wants a gradient")


@FORMS
@pytest.mark.parametrize("first", ["balancer", "sum"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_second_backward_on_the_same_losses(method, first, form):
    model, balancer = started(method)
    losses = model.losses()
    balancer.backward(losses) if first == "balancer" else sum(losses.values()).backward()
    assert refused(balancer, model, losses, form=form) == SECOND_BACKWARD


@FORMS
@AT_Z
def test_a_balancer_made_after_the_forward(method, form):
    model = mlp()
    x, targets = batch()
    outputs = model(x)
    balancer = method.create(model.trunk)
    message = refused(balancer, model, losses_of(outputs, targets), form=form)
    assert "the losses were computed before this balancer was made" in message
    getattr(balancer, form)(losses_of(model(x), targets))


@EVERYWHERE
def test_losses_from_another_module(method):
    model = mlp()
    message = refused(method.create(copy.deepcopy(model).trunk), model, model.losses())
    assert message.startswith("shared has no parameter that a loss reaches")
    assert "(16, 6)" in message


class Tied(nn.Module):
    """An embedding at the bottom of the trunk that the output layer of one task uses as well."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Embedding(10, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, tokens):
        z = self.trunk(tokens)
        return {"a": z @ self.trunk[0].weight.T, "b": self.head(z)}


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_weight_that_trunk_and_head_have_in_common(method):
    model = Tied().to(DEVICE)
    balancer = method.create(model.trunk, tasks=["a", "b"])
    losses = {task: one.square().mean() for task, one in model(torch.arange(8, device=DEVICE)).items()}
    if needs_z(method):
        message = refused(balancer, model, losses)
        assert "task 'a' also reaches shared parameters around the representation (one of shape (10, 16))" in message
    else:
        check_backward(balancer, losses, model, model.trunk)


def test_the_reason_without_the_numbers_of_nodes(monkeypatch):
    monkeypatch.setattr("excessmtl.graph.problems.time_in_graph", lambda node: 0)
    model = mlp()
    losses = model.losses()
    balancer = ROBUST.create(model.trunk)
    balancer._shared.watched_since = 0
    assert "was not called" in refused(balancer, model, losses)


def test_the_name_of_a_part():
    model = mlp()
    check_backward(excessmtl.create("excess", TASKS, model, z="trunk"), model.losses(), model, model.trunk)
    with pytest.raises(ValueError, match=r"z names 'encoder'.*its parts are \['trunk', 'heads'\]"):
        excessmtl.create("uniform", TASKS, model, z="encoder")
    with pytest.raises(ValueError, match="z must be the name of a submodule"):
        excessmtl.create("uniform", TASKS, model.parameters(), z="trunk")
    with pytest.raises(ValueError, match="z must be the name of a submodule"):
        excessmtl.create("uniform", TASKS, model, z=model.trunk)
