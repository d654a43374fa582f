"""Private names of torch: all there today, and a step without any one of them still gives the same gradients."""

import warnings
from operator import attrgetter

import pytest
import torch
from torch import nn

import excessmtl
from excessmtl import torch_private as private_torch
from excessmtl.distributed import fsdp
from models import DEVICE, PAPER, ROBUST, UNIFORM, batch, gradients, losses_of, mlp

numbers_its_nodes = pytest.mark.skipif(
    not hasattr(torch.autograd.graph.Node, "_sequence_nr"), reason="this torch, 2.8 or older, has one name less"
)


@numbers_its_nodes
def test_nothing_has_vanished():
    """When this fails after an update of torch: steps go on by slower ways, see what `NAMES` says of each."""
    assert private_torch.missing() == []


@numbers_its_nodes
def test_what_has_vanished_is_named(monkeypatch):
    monkeypatch.setitem(private_torch.NAMES, "autograd.graph._no_such_name", "without it: nothing")
    assert private_torch.missing() == ["autograd.graph._no_such_name"]


def no_linear_layer(monkeypatch):
    """Nodes of other names, as a new version may have them."""
    monkeypatch.setattr(private_torch, "_LINEAR_INPUT", {"AddmmBackward7": "_saved_mat1"})


def other_saved_fields(monkeypatch):
    """Nodes of the same name that save their inputs under another one."""
    monkeypatch.setattr(private_torch, "_LINEAR_INPUT", dict.fromkeys(private_torch._LINEAR_INPUT, "_saved_nothing"))


def without(name):
    return lambda monkeypatch: monkeypatch.setattr(private_torch, name, None)


VANISHED = {
    "engine": without("_run"),
    "vmap warnings": without("_warn_of_loops"),
    "foreach copies": without("_copy_all"),
    "node names": no_linear_layer,
    "saved fields": other_saved_fields,
    "versions": lambda monkeypatch: monkeypatch.setattr(private_torch, "version", lambda tensor: None),
    "tables of a module": lambda monkeypatch: monkeypatch.setattr(private_torch, "tables", lambda module: None),
    "sizes of gradients": lambda monkeypatch: monkeypatch.setattr(private_torch, "_SIZES", "_no_such_name"),
    "callbacks": without("_queue_callback"),
    "hooks of leaves": lambda monkeypatch: monkeypatch.setattr(private_torch, "_HOOKS", (attrgetter("_no_such"),)),
    "data parallel": lambda monkeypatch: monkeypatch.delattr(nn.parallel.DistributedDataParallel, "_active_ddp_module"),
}


def steps(method, scalar=False, **options):
    model = mlp()
    balancer = method.create(model.trunk, **options)
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        x, targets = batch()
        model.zero_grad()
        losses = losses_of(model(x), targets)
        if scalar:
            balancer(losses).backward()
        else:
            balancer.backward(losses)
        found.append(gradients(model))
    return found


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("name", VANISHED)
@pytest.mark.parametrize("method", [ROBUST, PAPER, UNIFORM], ids=str)
def test_a_step_without_it(method, name, engine, monkeypatch):
    forms = [(False, {}), (True, {})]
    if method is PAPER and engine == "fast":
        forms.append((False, {"tasks_at_once": 3}))
    for scalar, options in forms:
        wanted = steps(method, scalar, engine=engine, **options)
        with monkeypatch.context() as patched:
            VANISHED[name](patched)
            found = steps(method, scalar, engine=engine, **options)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_the_scalar_form_under_fsdp_without_callbacks(monkeypatch):
    monkeypatch.setattr(fsdp, "in_use", lambda: True)
    wanted = steps(ROBUST, scalar=True)
    monkeypatch.setattr(private_torch, "_queue_callback", None)
    torch.testing.assert_close(steps(ROBUST, scalar=True), wanted)


def test_hooks_that_cannot_be_disabled_do_not_stop_a_step():
    """A tensor that has no `_backward_hooks`: its hooks then act twice, and the step goes on."""

    class Bare:
        grad, retains_grad = None, False

    with private_torch.hooks_disabled([Bare(), None]):
        pass


def test_saved_tensors_that_cannot_be_released_stay():
    node = (torch.ones(2, requires_grad=True) * 2).grad_fn
    assert not private_torch.release_saved(node)


def test_join_is_noticed_only_where_it_can_be(monkeypatch):
    module = nn.Linear(2, 2)
    assert not private_torch.inside_join(None)
    assert not private_torch.inside_join(module)
    private_torch.note_data_parallel(module)  # without a process group there is nothing to note
    assert not private_torch.inside_join(module)


def test_an_old_engine_name_is_refused():
    with pytest.raises(ValueError, match="engine must be 'fast' or 'reference', found 'quick'"):
        excessmtl.create("uniform", tasks=["a"], shared=nn.Linear(2, 2).to(DEVICE), engine="quick")
    with pytest.raises(ValueError, match="is an option of engine='fast'"):
        PAPER.create(nn.Linear(2, 2), engine="reference", tasks_at_once=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        UNIFORM.create(nn.Linear(2, 2), engine="reference", record=True)
