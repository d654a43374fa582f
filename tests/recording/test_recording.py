"""What a recording keeps, why one fails, and what recordings are looked up by."""

from contextlib import contextmanager

import torch

from excessmtl.recording import recording as recording_module
from excessmtl.recording.recording import GraphCache, Recording, failure, signature
from excessmtl.tensors import filled


@contextmanager
def _capturing(*arguments, **options):
    yield


def test_constants_that_are_forgotten_stay_with_the_recording(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(recording_module, "captured", _capturing)
    recording = Recording(lambda: filled(0, 3, torch.device("cpu")), None)
    for number in range(1, 300):
        filled(number, 3, torch.device("cpu"))
    assert filled(0, 3, torch.device("cpu")) is not recording.result
    assert any(constant is recording.result for constant in recording.constants)


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
