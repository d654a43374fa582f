"""`shared` as several modules, containers and parameters: the outputs of every member are the representation."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from choices import METHODS, PAPER, ROBUST, UNIFORM
from models import DEVICE, FEATURES, TASKS, WIDTH, MultiTask, batch, heads_on, mlp
from steps import check_backward, trained


class Experts(MultiTask):
    """A multi-gate mixture of experts: the list of experts is never called itself."""

    def __init__(self, container=nn.ModuleList):
        experts = {f"expert {i}": nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh()) for i in range(3)}
        super().__init__(container(experts if container is nn.ModuleDict else experts.values()))
        self.gates = nn.ModuleDict({task: nn.Linear(FEATURES, 3) for task in TASKS})
        self.to(DEVICE)

    def forward(self, x):
        experts = self.trunk.values() if isinstance(self.trunk, nn.ModuleDict) else self.trunk
        seen = torch.stack([expert(x) for expert in experts], dim=1)
        mixed = {task: (gate(x).softmax(-1)[..., None] * seen).sum(1) for task, gate in self.gates.items()}
        return {task: head(mixed[task]) for task, head in self.heads.items()}


class Tokens(MultiTask):
    """A parameter, an encoder and a neck, called one after the other."""

    def __init__(self):
        super().__init__(nn.ModuleList([nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)]))
        self.scale = nn.Parameter(torch.ones(FEATURES))
        self.encoder, self.neck = self.trunk
        self.to(DEVICE)

    def forward(self, x):
        z = self.neck(self.encoder(x * self.scale).tanh())
        return {task: head(z) for task, head in self.heads.items()}


SHARED = {
    # The model, and what of it is passed.
    "a list": (Experts, lambda model: model.trunk),
    "a dict": (lambda: Experts(nn.ModuleDict), lambda model: model.trunk),
    "modules": (Experts, lambda model: list(model.trunk)),
    "modules and a parameter": (Tokens, lambda model: (model.scale, model.encoder, model.neck)),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize(
    ("method", "engine"),
    [*((method, "fast") for method in METHODS), *((method, "reference") for method in (ROBUST, PAPER, UNIFORM))],
    ids=str,
)
def test_several_parts(method, name, engine):
    make, shared = SHARED[name]
    model = make()
    balancer = method.create(shared(model), engine=engine)
    parameters = [*([model.scale] if make is Tokens else []), *model.trunk.parameters()]
    assert [id(one) for one in balancer.shared_parameters] == [id(one) for one in parameters]
    for scalar in (False, True):
        check_backward(balancer, model.losses(), model, parameters, scalar=scalar)


def test_a_parameter_that_a_module_has_too_counts_once():
    model = Tokens()
    assert len(UNIFORM.create([model.encoder, model.encoder.weight, model.encoder]).shared_parameters) == 2


@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_several_modules_train_like_the_one_that_holds_them(method):
    found = []
    for wrap in (lambda trunk: trunk, lambda trunk: nn.ModuleList([trunk]), lambda trunk: [trunk[0], trunk[1]]):
        model = mlp()
        steps = trained(method.create(wrap(model.trunk)), model, 4)
        found.append([*[step.weights for step in steps], *model.parameters()])
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


COPIES = {
    "both": copy.deepcopy,
    "the balancer alone": lambda pair: (pair[0], copy.deepcopy(pair[1])),
    "pickled": lambda pair: pickle.loads(pickle.dumps(pair)),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_a_balancer_with_several_modules(how):
    model = Experts()
    model, balancer = COPIES[how]((model, ROBUST.create(list(model.trunk))))
    check_backward(balancer, model.losses(), model, model.trunk)


def test_hooks_go_with_the_balancer():
    model = Experts()
    balancer = ROBUST.create(model.trunk)
    assert all(expert._forward_hooks for expert in model.trunk)
    del balancer
    gc.collect()
    assert not any(expert._forward_hooks for expert in model.trunk)


@pytest.mark.filterwarnings("ignore")  # of the compiler itself
def test_a_compiled_module_in_a_list():
    model = Tokens()
    compiled = torch.compile(model.neck, backend="eager")
    balancer = ROBUST.create([model.encoder, compiled])
    x, targets = batch()
    check_backward(balancer, heads_on(model, compiled(model.encoder(x).tanh()), targets), model, model.trunk)


@pytest.mark.parametrize("shared", [[nn.Linear(2, 2), "encoder"], [[nn.Linear(2, 2)]], {"a": nn.Linear(2, 2)}])
def test_a_list_of_other_things(shared):
    with pytest.raises(ValueError, match="shared must hold modules or leaf tensors"):
        UNIFORM.create(shared)
