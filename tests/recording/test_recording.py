"""Making a recording moves no balancer, also where it fails half way; what recordings are looked up by."""

from contextlib import contextmanager

import pytest
import torch

from excessmtl.lab.training.replay import RecordedStep
from excessmtl.recording import recording as recording_module
from excessmtl.recording.recording import GraphCache, failure, signature
from excessmtl.tensors import filled
from recorded_world import World, batches


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


def test_the_state_stays_where_it_is_and_steps_are_counted_when_replayed(world):
    before = dict(world.balancer.named_buffers())
    recording = RecordedStep(lambda: world.step(*batches(1)[0]), world.balancer.memory, None)
    assert world.balancer.steps == 3
    recording.replay()
    assert recording.graph.launched == 1
    assert world.balancer.steps == 4
    world.step(*batches(1)[0])
    world.balancer.end_epoch()
    assert all(buffer is before[name] for name, buffer in world.balancer.named_buffers())


def test_constants_that_are_forgotten_stay_with_the_recording(world):
    recording = RecordedStep(lambda: world.step(*batches(1)[0]), world.balancer.memory, None)
    zeros = filled(0, 3, torch.device("cpu"))
    for number in range(1, 300):
        filled(number, 3, torch.device("cpu"))
    assert filled(0, 3, torch.device("cpu")) is not zeros
    assert any(constant is zeros for constant in recording.constants)


def test_a_recording_that_fails_half_way_leaves_no_trace(world):
    before = dict(world.balancer.named_buffers())

    def work():
        world.balancer.backward(world.compute(*batches(1)[0]))
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        RecordedStep(work, world.balancer.memory, None)
    assert all(buffer is before[name] for name, buffer in world.balancer.named_buffers())
    assert world.balancer.steps == 3


@pytest.mark.usefixtures("world")
def test_random_numbers_of_the_host_are_refused_and_given_back():
    world = World("rlw")
    before = world.balancer.memory.generator.get_state()
    with pytest.raises(ValueError, match="random numbers"):
        RecordedStep(lambda: world.step(*batches(1)[0]), world.balancer.memory, None)
    assert torch.equal(world.balancer.memory.generator.get_state(), before)


def test_a_graph_that_stands_in_the_way_is_named():
    error = RuntimeError("CUDA error: operation would make the legacy stream depend on a capturing stream\nand more")
    assert "delete what holds it" in failure(error)
    assert failure(RuntimeError("out of memory\nand more")) == "recording one failed (out of memory)"


def test_a_kind_that_was_never_recorded_makes_room():
    cache = GraphCache()
    cache.entry(("kept",)).recorded = object()
    for number in range(20):
        assert cache.entry((number,)).steps == 0
        assert cache.entry(("kept",)).recorded is not None
    waiting = cache.entry(("waiting",))
    for number in range(20):  # as long as it is seen now and then, it stays
        cache.entry((number,))
        assert cache.entry(("waiting",)) is waiting


def test_signatures_tell_shapes_and_types_apart():
    x = torch.zeros(2, 3)
    inputs = [[x], [x.double()], [x.T], [x, x]]
    signatures = [signature(tensors) for tensors in inputs]
    assert len(set(signatures)) == len(inputs)
    assert signature([torch.ones(2, 3)]) == signatures[0]
