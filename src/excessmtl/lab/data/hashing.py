"""Texts as counts of what occurs in them, in a fixed number of columns: no vocabulary, no download."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[!?]+|[:;=][-']?[()dp/\\|]|<3")


def words(text: str) -> list[str]:
    """Words in small letters, numbers, exclamation and question marks and the common emoticons, and pairs of them."""
    single = _WORD.findall(text.lower())
    return [*single, *(" ".join(pair) for pair in pairwise(single))]


def substrings(text: str, longest: int = 5) -> list[str]:
    """All substrings of one to `longest` characters."""
    return [text[start : start + size] for size in range(1, longest + 1) for start in range(len(text) - size + 1)]


def hashed_counts(parts: Iterable[Sequence[str]], columns: int) -> Tensor:
    """[n, columns] uint8: how often a part of the text falls into each column, at most 255 times."""
    rows = []
    for own in parts:
        places = np.fromiter((crc32(part.encode()) % columns for part in own), np.int64, len(own))
        rows.append(np.bincount(places, minlength=columns).clip(max=255).astype(np.uint8))
    return torch.from_numpy(np.stack(rows))


def dampened(counts: Tensor) -> Tensor:
    """A benchmark's `prepare`: the logarithm of one plus the count."""
    return counts.float().log1p()
