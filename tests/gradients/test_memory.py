"""Gradients at a representation of maps are let go as soon as they are not needed: how many are alive, and when."""

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import choices
from choices import PAPER, PAPER_Z, ROBUST, UNIFORM, Method
from excessmtl.recording import recorded as engine_module
from excessmtl.recording.recorded import Recorded
from models import DEVICE

TASKS = list("abcdef")
MGDA_Z = Method("mgda", {"probe": "representation"})
SHAPE = (2, 8, 40, 40)


@pytest.fixture(params=["not recorded", "to be recorded"], autouse=True)
def way(request, monkeypatch):
    """Decisions that are never recorded, and those that are going to be."""
    monkeypatch.setattr(choices, "ENGINE", lambda: Recorded())
    monkeypatch.setattr(engine_module, "records_on", lambda device: request.param == "to be recorded")
    monkeypatch.setattr(Recorded, "recorded_on", {DEVICE.type})


class Alive(TorchDispatchMode):
    """Bytes of the tensors that operations inside have returned, and the most there were."""

    def __init__(self):
        super().__init__()
        self.most, self._storages = 0, {}

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        result = operation(*arguments, **(options or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.most = max(self.most, self.now)
        return result

    @property
    def now(self):
        self._storages = {key: found for key, found in self._storages.items() if not found[0].expired()}
        return sum(size for _, size in self._storages.values())


def step(method, shape=SHAPE, **arguments):
    """Alive at most, when the trunk has been passed, and afterwards: in representations."""
    torch.manual_seed(1)
    trunk = nn.Conv2d(shape[1], shape[1], 3, padding=1, device=DEVICE)
    heads = {task: nn.Conv2d(shape[1], 1, 3, padding=1, device=DEVICE) for task in TASKS}
    balancer = method.create(trunk, tasks=TASKS)
    inputs = torch.randn(shape, device=DEVICE)
    during = []
    for _ in range(2):  # the first makes constants
        z = trunk(inputs)
        losses = {task: head(z).square().mean() for task, head in heads.items()}
        size = z.nbytes
        del z
        with Alive() as alive:
            hook = trunk.weight.register_post_accumulate_grad_hook(lambda weight, alive=alive: during.append(alive.now))
            balancer.backward(losses, **arguments)
            afterwards = alive.now
        hook.remove()
        del losses
        balancer.discard()
    return alive.most / size, during[-1] / size if during else None, afterwards / size


@pytest.mark.parametrize("method", [UNIFORM, ROBUST, PAPER_Z, MGDA_Z], ids=str)
def test_there_is_one_for_each_task_and_the_trunk_is_walked_with_the_weighted_sum_alone(method):
    most, during, afterwards = step(method)
    assert most < len(TASKS) + 4
    assert during < 3  # the sum and z; never one per task
    assert afterwards < 1


@pytest.mark.parametrize("method", [UNIFORM, PAPER, Method("cagrad"), Method("groupdro")], ids=str)
def test_what_no_rule_will_look_at_does_not_wait_for_the_last_micro_batch(method):
    assert step(method, accumulate=True)[2] < 1


def test_sketches_larger_than_the_maps_are_made_one_by_one():
    """33 x 32 numbers for every sample of 8 x 3 x 3."""
    sketch = 33 * 32 / (8 * 3 * 3)
    assert step(ROBUST, (400, 8, 3, 3))[0] < len(TASKS) + 3 * sketch
