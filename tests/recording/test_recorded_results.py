"""What a recording leaves is copied as it was: values, layouts and types, each where one of its own would begin."""

import pytest
import torch

from excessmtl.recording.results import Results
from models import DEVICE


def tensors():
    image = torch.randn(2, 3, 5, 7, device=DEVICE)
    return {
        "odd": torch.randn(7, 3, device=DEVICE),
        "turned": torch.randn(3, 5, device=DEVICE).t(),
        "channels last": image.to(memory_format=torch.channels_last),
        "expanded": torch.randn(1, 4, device=DEVICE).expand(6, 4),
        "with gaps": torch.randn(9, 4, device=DEVICE)[::2],
        "number": torch.randn((), device=DEVICE),
        "empty": torch.empty(0, 3, device=DEVICE),
        "half": torch.randn(5, device=DEVICE).bfloat16(),
        "double": torch.randn(3, 3, device=DEVICE).double(),
        "complex": torch.randn(3, device=DEVICE, dtype=torch.complex64).conj(),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_copies_are_equal_and_stay_so(order):
    given = list(tensors().values())[::order]
    results = Results(given)
    copies = results.copies()
    torch.testing.assert_close(copies, [tensor.resolve_conj() for tensor in given], rtol=0, atol=0)
    kept = [copy.clone() for copy in copies]
    for flat, _ in results._groups:  # as the next replay does
        flat.fill_(7)
    torch.testing.assert_close(copies, kept, rtol=0, atol=0)


def test_layouts_stay_where_memory_has_no_gaps():
    given = tensors()
    copies = dict(zip(given, Results(list(given.values())).copies(), strict=True))
    for name in ("odd", "turned", "channels last", "number"):
        assert copies[name].stride() == given[name].stride()
    for name in ("expanded", "with gaps"):
        assert copies[name].is_contiguous()


def test_every_copy_begins_where_a_tensor_of_its_own_would():
    for copy in Results(list(tensors().values())).copies():
        assert copy.storage_offset() * copy.element_size() % 512 == 0


def test_nothing_at_all():
    assert Results([]).copies() == []
