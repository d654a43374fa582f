"""Making a recording moves no balancer: neither when it succeeds nor when it fails half way."""

from contextlib import contextmanager

import pytest
import torch

from excessmtl.recording import recording as recording_module
from excessmtl.recording.recording import Recording, failure
from excessmtl.tensors import filled
from replay_world import World, batches


class Graph:
    """Stands in for a CUDA graph: counts how often it is launched."""

    launched = 0

    def replay(self):
        self.launched += 1


@contextmanager
def _capturing(*arguments, **options):
    yield


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(recording_module, "captured", _capturing)
    world = World("excess")
    for batch in batches(3):
        world.step(*batch)
    return world


def buffers(balancer):
    return dict(balancer.named_buffers())


def test_the_state_stays_where_it_is_and_steps_are_counted_when_replayed(world):
    before = buffers(world.balancer)
    recording = Recording(lambda: world.step(*batches(1)[0]), world.balancer.memory, None)
    assert world.balancer.steps == 3
    recording.replay()
    assert recording.graph.launched == 1
    assert world.balancer.steps == 4
    world.step(*batches(1)[0])
    world.balancer.end_epoch()
    assert all(buffers(world.balancer)[name] is place for name, place in before.items())


def test_constants_that_are_forgotten_stay_with_the_recording(world):
    recording = Recording(lambda: world.step(*batches(1)[0]), world.balancer.memory, None)
    zeros = filled(0, 3, torch.device("cpu"))
    assert any(constant is zeros for constant in recording.constants)
    for number in range(1, 300):
        filled(number, 3, torch.device("cpu"))
    assert filled(0, 3, torch.device("cpu")) is not zeros
    assert any(constant is zeros for constant in recording.constants)


def test_a_recording_that_fails_half_way_leaves_no_trace(world):
    before = buffers(world.balancer)

    def work():
        world.balancer.backward(world.compute(*batches(1)[0]))
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        Recording(work, world.balancer.memory, None)
    assert all(buffer is before[name] for name, buffer in buffers(world.balancer).items())
    assert world.balancer.steps == 3


@pytest.mark.usefixtures("world")
def test_random_numbers_of_the_host_are_refused_and_given_back():
    world = World("rlw")
    before = world.balancer.memory.generator.get_state()
    with pytest.raises(ValueError, match="random numbers"):
        Recording(lambda: world.step(*batches(1)[0]), world.balancer.memory, None)
    assert torch.equal(world.balancer.memory.generator.get_state(), before)


def test_a_graph_that_stands_in_the_way_is_named():
    error = RuntimeError("CUDA error: operation would make the legacy stream depend on a capturing stream\nand more")
    assert "delete what holds it" in failure(error)
    assert failure(RuntimeError("out of memory\nand more")) == "recording one failed (out of memory)"
