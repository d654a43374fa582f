"""Where one way becomes faster than another, in one place, with the measurement behind each number."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """The defaults were measured with `excessmtl bench` on an H200 and on two CPU cores."""

    tasks_at_once: int = 8
    """Tasks that go through the trunk in one backward pass on a GPU. ResNet-18 with 40 tasks: 70 ms with 8, 68 with 20
    at 1.4 times the memory, 164 one by one. On a CPU one by one is the fastest."""
    entries_at_once: int = 2**29
    """Entries of the gradients at all nodes of the trunk, over all tasks of one such pass, that keep a GPU busy: more
    only take memory. ResNet-18 that keeps images at 64 px (2^30 for one task), 4 tasks: 75 ms and 3.8 GB one by one, 79
    ms and 5.1 GB in one pass."""
