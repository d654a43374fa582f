"""Making a recording moves no balancer: neither when it succeeds nor when it fails half way."""

from contextlib import contextmanager

import pytest
import torch

from excessmtl.gradients.gathered import _flags
from excessmtl.gradients.rows import index_of
from excessmtl.recording import graph as graph_module
from excessmtl.recording.graph import Recording, failure
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
    monkeypatch.setattr(graph_module, "captured", _capturing)
    world = World("excess")
    for batch in batches(3):
        world.step(*batch)
    return world


def buffers(balancer):
    return dict(balancer.named_buffers())


def test_the_state_stays_in_its_places_and_steps_are_counted_when_replayed(world):
    before = buffers(world.balancer)
    recording = Recording(lambda: world.step(*batches(1)[0]), world.balancer, None)
    assert all(buffers(world.balancer)[name] is place for name, place in before.items())
    assert world.balancer.get_extra_state()["steps"] == 3
    recording.replay()
    assert recording.graph.launched == 1
    assert world.balancer.get_extra_state()["steps"] == 4


def test_a_step_taken_in_between_is_brought_to_the_places(world):
    recording = Recording(lambda: world.step(*batches(1)[0]), world.balancer, None)
    world.step(*batches(1)[0])
    after = {name: buffer.clone() for name, buffer in buffers(world.balancer).items()}
    recording.replay()
    for name, buffer in buffers(world.balancer).items():
        assert buffer is recording.places[name]
        assert torch.equal(buffer, after[name])


def test_constants_that_are_forgotten_stay_with_the_recording(world):
    recording = Recording(lambda: world.step(*batches(1)[0]), world.balancer, None)
    everyone = _flags((True, True, True), torch.device("cpu"))
    assert any(constant is everyone for constant in recording.constants)
    for number in range(300):
        index_of((number,), torch.device("cpu"))
        _flags(tuple(digit == "1" for digit in f"{number:010b}"), torch.device("cpu"))
    assert _flags((True, True, True), torch.device("cpu")) is not everyone
    assert any(constant is everyone for constant in recording.constants)


def test_a_recording_that_fails_after_the_step_leaves_no_trace(world):
    before, values = buffers(world.balancer), {name: b.clone() for name, b in buffers(world.balancer).items()}

    def work():
        world.balancer.backward(world.compute(*batches(1)[0]))
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        Recording(work, world.balancer, None)
    for name, buffer in buffers(world.balancer).items():
        assert buffer is before[name]
        assert torch.equal(buffer, values[name])
    assert world.balancer.get_extra_state()["steps"] == 3


def test_a_graph_that_stands_in_the_way_is_named():
    error = RuntimeError("CUDA error: operation would make the legacy stream depend on a capturing stream\nand more")
    assert "delete what holds it" in failure(error)
    assert failure(RuntimeError("out of memory\nand more")) == "recording one failed (out of memory)"
