"""The parameters of the shared module are always those the module itself would list."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from excessmtl.graph.shared import ParameterList


def assert_lists(listing):
    wanted = list(listing.module.parameters())
    found = listing.parameters
    assert len(found) == len(wanted)
    assert all(one is other for one, other in zip(found, wanted, strict=True))
    assert listing.ids == {id(parameter) for parameter in wanted}


def trunk():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))


def _exchange(module):
    module[0].weight = nn.Parameter(torch.zeros(4, 3))


def _tie(module):
    module[2].bias = module[0].bias


def _append(module):
    module.append(nn.Linear(4, 1))


def _nest(module):
    module[1] = nn.ParameterList([torch.zeros(2), torch.ones(2)])


def _lose(module):
    module[0].bias = None


def _parametrize(module):
    parametrizations.weight_norm(module[2])


def _assign(module):
    module.load_state_dict({name: value.clone() for name, value in module.state_dict().items()}, assign=True)


CHANGES = [_exchange, _tie, _append, _nest, _lose, _parametrize, _assign]


@pytest.mark.parametrize("change", CHANGES)
def test_a_module_that_is_changed(change):
    module = trunk()
    listing = ParameterList(module)
    assert_lists(listing)
    change(module)
    assert_lists(listing)


def test_a_parametrization_that_is_removed():
    module = trunk()
    parametrizations.weight_norm(module[2])
    listing = ParameterList(module)
    assert_lists(listing)
    parametrize.remove_parametrizations(module[2], "weight")
    assert_lists(listing)


class Trainable(nn.Sequential):
    """Says of its parameters only those that are trained."""

    def parameters(self, recurse=True):
        return (parameter for parameter in super().parameters(recurse) if parameter.requires_grad)


class Chosen(nn.Sequential):
    """Hides the modules in it that are asleep."""

    awake = True

    def named_modules(self, *arguments, **options):
        return super().named_modules(*arguments, **options) if self.awake else iter(())


def test_a_module_that_lists_in_a_way_of_its_own():
    module = Trainable(nn.Linear(3, 4), nn.Linear(4, 4))
    listing = ParameterList(module)
    assert_lists(listing)
    module[0].requires_grad_(False)
    assert_lists(listing)
    assert len(listing.parameters) == 2


def test_a_module_inside_that_is_walked_in_a_way_of_its_own():
    module = nn.Sequential(nn.Linear(3, 4), Chosen(nn.Linear(4, 4)))
    listing = ParameterList(module)
    assert_lists(listing)
    module[1].awake = False
    assert_lists(listing)
    assert len(listing.parameters) == 2


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_module():
    listing = ParameterList(torch.jit.trace(trunk(), torch.zeros(2, 3)))
    assert len(listing.parameters) == 4
    assert_lists(listing)
