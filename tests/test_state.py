"""State: bit-exact resume, strict and harmless loading, copies that go on by themselves."""

import copy
import io
import pickle
from inspect import signature

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed import checkpoint

from choices import EVERY_METHOD, PAPER, ROBUST, UNIFORM, Method
from models import DEVICE, MultiTask, batch, losses_of, mlp
from steps import assert_same, gradients, host_state, started, trained, with_host_state

ROUNDED = Method("excess", {"estimator": "paper", "accumulators": "bf16"})
each_method = pytest.mark.parametrize("method", [ROBUST, PAPER, ROUNDED, Method("rlw")], ids=str)
"""Small state, large ones that change in place, a random stream. `check_rule` has every method resume."""


def advance(balancer, model, seeds):
    """Training on batches that depend on the seeds alone; all there is to see of it."""
    seen = []
    for seed in seeds:
        torch.manual_seed(seed)
        model.zero_grad()
        step = balancer.backward(model.losses())
        seen.append((step.weights, step.excess_risks, gradients(model)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 * parameter.grad
        if seed % 3 == 2:
            balancer.end_epoch()
    return seen


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("method", EVERY_METHOD, ids=str)
def test_safetensors_holds_the_state(method, tmp_path):
    """The format of Hugging Face: tensors alone, contiguous, no two of them in the same memory."""
    owner, twin = (Owner(method).to(DEVICE) for _ in range(2))
    advance(owner.balancer, owner, range(3))
    save_file(owner.state_dict(), tmp_path / "model.safetensors")
    twin.load_state_dict(load_file(tmp_path / "model.safetensors", device=str(DEVICE)))
    assert_same(owner.balancer.state_dict(), twin.balancer.state_dict())


@pytest.mark.parametrize("method", [ROBUST, Method("rlw")], ids=str)
def test_a_state_loaded_key_by_key(method):
    """As Hugging Face's `from_pretrained` does: each tensor becomes that of a module made without memory."""
    owner = Owner(method).to(DEVICE)
    advance(owner.balancer, owner, range(3))
    with torch.device("meta"):
        twin = Owner(method, MultiTask())
    for key, value in through_a_file(owner.state_dict()).items():
        path, _, name = key.rpartition(".")
        twin.get_submodule(path).load_state_dict({name: value}, strict=False, assign=True)
    assert_same(owner.balancer.state_dict(), twin.balancer.state_dict())
    assert_same(advance(owner.balancer, owner, range(5, 8)), advance(twin.balancer, twin, range(5, 8)))
    broken = UNIFORM.create(mlp().trunk).state_dict()[EXTRA]
    with pytest.raises(ValueError, match="method 'uniform'"):
        twin.balancer.memory.load_state_dict({"_extra_state": broken}, strict=False, assign=True)


@pytest.mark.skipif("no_dist" not in signature(checkpoint.save).parameters, reason="torch 2.6 wants several processes")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.distributed", "ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("method", [ROBUST, Method("rlw")], ids=str)
def test_a_distributed_checkpoint_loads_into_a_fresh_state(method, tmp_path):
    """It fills the tensors of another state, so these must have the sizes of those saved, whatever was counted."""
    model, balancer = started(method)
    advance(balancer, model, range(12))
    checkpoint.save({"balancer": balancer.state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    restored = method.create(model.trunk)
    state = {"balancer": restored.state_dict()}
    checkpoint.load(state, checkpoint_id=tmp_path, no_dist=True)
    restored.load_state_dict(state["balancer"])
    assert restored.steps == 12
    assert_same(balancer.state_dict(), restored.state_dict())


def test_an_option_changed_after_creation_is_saved_as_it_is_now():
    model = mlp()
    balancer, plain = UNIFORM.create(model.trunk), UNIFORM.create(model.trunk)
    balancer.scale = 3.0
    with pytest.raises(ValueError, match=r"saved with scale=3\.0, this balancer has scale='sum'"):
        plain.load_state_dict(balancer.state_dict())
    with pytest.raises(ValueError, match=r"saved with scale='sum', this balancer has scale=3\.0"):
        balancer.load_state_dict(plain.state_dict())
    plain.scale = 3.0
    plain.load_state_dict(balancer.state_dict())


@pytest.mark.parametrize("assign", [False, True])
@each_method
def test_a_saved_state_does_not_change_with_steps_or_when_one_is_loaded(method, assign):
    model, balancer = started(method)
    early = copy.deepcopy(balancer.state_dict())
    advance(balancer, model, range(2))
    saved = balancer.state_dict()
    kept = copy.deepcopy(saved)
    balancer.load_state_dict(saved, assign=assign)
    advance(balancer, model, range(2, 4))
    balancer.load_state_dict(early)
    assert_same(saved, kept)


EXTRA, WEIGHTS = "memory._extra_state", "memory.weights"


def telling(**changes):
    """What a state says beside its buffers, with these changes; None leaves an entry out."""

    def change(state):
        told = {**host_state(state), **changes}
        return with_host_state(state, {name: value for name, value in told.items() if value is not None})

    return change


def holding(key, change):
    return lambda state: {**state, key: change(state[key])}


def lacking(key):
    return lambda state: {name: value for name, value in state.items() if name != key}


MISTAKES = {
    r"is for tasks \['b', 'a', 'c'\]": [telling(tasks=["b", "a", "c"])],
    "is for method 'dwa'": [telling(method="dwa")],
    "has version 99": [telling(version=99)],
    "no '_extra_state' entry of a balancer": [
        *(lambda state: {}, lacking(EXTRA), holding(EXTRA, lambda extra: None), holding(EXTRA, lambda extra: {})),
        *(holding(EXTRA, torch.Tensor.half), holding(EXTRA, lambda extra: extra.to("meta"))),
    ],
    "'_extra_state' entry that cannot be read": [
        *(holding(EXTRA, lambda extra: extra[:-999]), holding(EXTRA, lambda extra: extra[:0])),
        *(holding(EXTRA, torch.Tensor.to_sparse), telling(random=[1, 2])),
    ],
    "'_extra_state' entry of something else": [telling(version=None), lambda one: with_host_state(one, ["version"])],
    "a random stream of another kind": [telling(random="AAAA"), telling(random="A" * 6744)],
    "has random=None where Tensor is expected": [telling(random=None)],
    "has steps=(True|'7') where int is expected": [telling(steps=True), telling(steps="7")],
    "has steps=(-1|1000.*), expected 0 to": [telling(steps=-1), telling(steps=10**30)],
    r"missing \['weights'\]": [lacking(WEIGHTS)],
    r"unexpected \['more'\]": [lambda state: {**state, "memory.more": torch.zeros(3)}],
    "weights of type": [
        *(holding(WEIGHTS, lambda weights: weights.to("meta")), holding(WEIGHTS, torch.Tensor.to_sparse)),
        *(holding(WEIGHTS, torch.Tensor.double), holding(WEIGHTS, torch.Tensor.tolist)),
    ],
    r"weights of shape \(4,\)": [holding(WEIGHTS, lambda weights: torch.zeros(4))],
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_state_that_does_not_fit(sentence):
    model = mlp()
    balancer, source = ROBUST.create(model.trunk), ROBUST.create(model.trunk)
    advance(balancer, model, range(2))
    before = copy.deepcopy(balancer.state_dict())
    for change in MISTAKES[sentence]:
        with pytest.raises(ValueError, match=sentence):
            balancer.load_state_dict(change(source.state_dict()))
        assert_same(before, balancer.state_dict())


class Owner(nn.Module):
    """A model that owns its balancer."""

    def __init__(self, method, inner=None):
        super().__init__()
        self.inner = inner or mlp()
        self.balancer = method.create(self.inner.trunk)

    def losses(self):
        return self.inner.losses()


@each_method
def test_a_balancer_inside_the_model(method):
    owner = Owner(method).to(DEVICE)
    assert set(dict(owner.named_parameters())) == {f"inner.{name}" for name, _ in mlp().named_parameters()}
    assert not any("shared" in key or "trunk" in key for key in owner.balancer.state_dict())
    advance(owner.balancer, owner, range(3))
    twin = Owner(method).to(DEVICE)
    twin.load_state_dict(through_a_file(owner.state_dict()))
    assert_same(advance(owner.balancer, owner, range(5, 8)), advance(twin.balancer, twin, range(5, 8)))
    owner.zero_grad()
    copied = copy.deepcopy(owner)
    assert_same(advance(owner.balancer, owner, range(8, 10)), advance(copied.balancer, copied, range(8, 10)))


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.double], ids=lambda f: f.__name__)
@each_method
def test_changing_the_type_of_the_model_keeps_the_state(method, change):
    owner = Owner(method).to(DEVICE)
    advance(owner.balancer, owner, range(2))
    before = copy.deepcopy(owner.balancer.state_dict())
    change(owner)
    assert_same(before, owner.balancer.state_dict())


COPIES = {
    "model first": copy.deepcopy,
    "balancer first": lambda pair: copy.deepcopy(pair[::-1])[::-1],
    "a pickled copy of a copy": lambda pair: pickle.loads(pickle.dumps(copy.deepcopy(copy.deepcopy(pair)))),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(
    ("method", "shared"), [(ROBUST, "module"), (PAPER, "module"), (PAPER, "list"), (Method("rlw"), "module")], ids=str
)
def test_a_copy_of_model_and_balancer_goes_on_by_itself(method, how, shared):
    model = mlp()
    balancer = method.create(model.trunk if shared == "module" else list(model.trunk.parameters()))
    advance(balancer, model, range(2))
    model.zero_grad()
    twin, copied = COPIES[how]((model, balancer))
    untouched = copy.deepcopy(balancer.state_dict())
    copies_steps = advance(copied, twin, range(5, 8))
    assert_same(untouched, balancer.state_dict())
    assert all(p.grad is None for p in model.parameters())
    assert_same(copies_steps, advance(balancer, model, range(5, 8)))


@each_method
def test_a_copy_in_the_middle_of_an_accumulation(method):
    model, balancer = started(method)
    x, targets = batch()
    balancer.backward(losses_of(model(x), targets), accumulate=True)
    twin, copied = copy.deepcopy((model, balancer))
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        q.grad = copy.deepcopy(p.grad)  # a copied parameter has none
    for b, m in ((balancer, model), (copied, twin)):
        b.backward(losses_of(m(x), targets))
    assert_same(gradients(model), gradients(twin))
    assert_same(balancer.state_dict(), copied.state_dict())


def test_a_checkpoint_without_a_balancer_can_be_loaded_loosely():
    """Fine-tuning: `strict=False` is how one loads a backbone into a model that has more."""
    owner = Owner(UNIFORM).to(DEVICE)
    owner.load_state_dict({f"inner.{key}": value for key, value in mlp().state_dict().items()}, strict=False)


def test_a_balancer_says_what_it_is():
    assert "tasks=['a', 'b', 'c']" in repr(ROBUST.create(mlp().trunk))


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("method", EVERY_METHOD, ids=str)
def test_with_another_default_type_of_torch_the_state_is_fp32_all_the_same(method):
    model, balancer = started(method)
    (*_, step) = trained(balancer, model, 2)
    assert step.skipped == ()
    assert step.weights.isfinite().all()
    assert {buffer.dtype for buffer in balancer.buffers() if buffer.is_floating_point()} == {torch.float32}
    assert torch.get_default_dtype() is torch.float64
