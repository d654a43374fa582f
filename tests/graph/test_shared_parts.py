"""`shared` as several modules, containers and parameters: the outputs of every member are the representation."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from models import (
    DEVICE,
    FEATURES,
    METHODS,
    PAPER,
    ROBUST,
    TASKS,
    UNIFORM,
    WIDTH,
    MultiTask,
    batch,
    check_backward,
    losses_of,
    mlp,
    trained,
)

each_method = pytest.mark.parametrize("method", METHODS, ids=str)


class Experts(nn.Module):
    """A multi-gate mixture of experts: the list of experts is never called itself."""

    def __init__(self, container=nn.ModuleList):
        super().__init__()
        experts = {f"expert {i}": nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh()) for i in range(3)}
        self.experts = container(experts if container is nn.ModuleDict else experts.values())
        self.gates = nn.ModuleDict({task: nn.Linear(FEATURES, 3) for task in TASKS})
        self.heads = MultiTask().heads

    def forward(self, x):
        experts = self.experts.values() if isinstance(self.experts, nn.ModuleDict) else self.experts
        seen = torch.stack([expert(x) for expert in experts], dim=1)
        mixed = {task: (gate(x).softmax(-1)[..., None] * seen).sum(1) for task, gate in self.gates.items()}
        return {task: head(mixed[task]) for task, head in self.heads.items()}


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("container", [nn.ModuleList, nn.ModuleDict])
@each_method
def test_a_container_of_experts(method, container, engine):
    model = Experts(container).to(DEVICE)
    balancer = method.create(model.experts, engine=engine)
    for scalar in (False, True):
        x, targets = batch()
        check_backward(balancer, losses_of(model(x), targets), model, model.experts, scalar=scalar)


@each_method
def test_a_list_of_modules(method):
    model = Experts().to(DEVICE)
    balancer = method.create(list(model.experts))
    x, targets = batch()
    check_backward(balancer, losses_of(model(x), targets), model, model.experts)


class Tokens(nn.Module):
    """A parameter, an encoder and a neck, called one after the other."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FEATURES))
        self.encoder, self.neck = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.heads = MultiTask().heads

    def forward(self, x):
        z = self.neck(self.encoder(x * self.scale).tanh())
        return {task: head(z) for task, head in self.heads.items()}


@each_method
def test_modules_and_parameters(method):
    model = Tokens().to(DEVICE)
    shared = [model.scale, *model.encoder.parameters(), *model.neck.parameters()]
    balancer = method.create((model.scale, model.encoder, model.neck))
    assert [id(one) for one in balancer.shared_parameters] == [id(one) for one in shared]
    x, targets = batch()
    check_backward(balancer, losses_of(model(x), targets), model, shared)


def test_a_parameter_that_a_module_has_too_counts_once():
    model = Tokens()
    balancer = UNIFORM.create([model.encoder, model.encoder.weight, model.encoder])
    assert len(balancer.shared_parameters) == 2


@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_several_modules_train_like_the_one_that_holds_them(method):
    found = []
    for wrap in (lambda trunk: trunk, lambda trunk: nn.ModuleList([trunk]), lambda trunk: [trunk[0], trunk[1]]):
        model = mlp()
        steps = trained(method.create(wrap(model.trunk)), model, 4)
        found.append([*[step.weights for step in steps], *model.parameters()])
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


@pytest.mark.parametrize("together", [True, False])
def test_copies_of_a_balancer_with_several_modules(together):
    model = Experts().to(DEVICE)
    balancer = ROBUST.create(list(model.experts))
    twin, other = copy.deepcopy((model, balancer)) if together else (model, copy.deepcopy(balancer))
    x, targets = batch()
    check_backward(other, losses_of(twin(x), targets), twin, twin.experts)


def test_a_pickled_balancer_with_several_modules():
    model = Experts().to(DEVICE)
    model, balancer = pickle.loads(pickle.dumps((model, ROBUST.create(model.experts))))
    x, targets = batch()
    check_backward(balancer, losses_of(model(x), targets), model, model.experts)


def test_hooks_go_with_the_balancer():
    model = Experts()
    balancer = ROBUST.create(model.experts)
    assert all(expert._forward_hooks for expert in model.experts)
    del balancer
    gc.collect()
    assert not any(expert._forward_hooks for expert in model.experts)


@pytest.mark.filterwarnings("ignore")  # of the compiler itself
def test_a_compiled_module_in_a_list():
    model = Tokens().to(DEVICE)
    compiled = torch.compile(model.neck, backend="eager")
    balancer = ROBUST.create([model.encoder, compiled])
    x, targets = batch()
    z = compiled(model.encoder(x).tanh())
    losses = losses_of({task: head(z) for task, head in model.heads.items()}, targets)
    check_backward(balancer, losses, model, [*model.encoder.parameters(), *model.neck.parameters()])


@pytest.mark.parametrize("shared", [[nn.Linear(2, 2), "encoder"], [[nn.Linear(2, 2)]], {"a": nn.Linear(2, 2)}])
def test_a_list_of_other_things(shared):
    with pytest.raises(ValueError, match="shared must hold modules or leaf tensors"):
        UNIFORM.create(shared)
