"""Checkpoints that are whole or not there, and that know when they have been damaged."""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from excessmtl.files import read_bytes, read_text, write_whole
from excessmtl.lab.schema import explained, mapping, shortened

_NAMES = "latest.json"
_FILE = re.compile(r"epoch-[0-9]{5,}\.pt")
ADVICE = "delete the run's folder and start again, or restore the file"


def save(folder: Path, state: dict[str, Any], epoch: int) -> None:
    """Write the state of the run after `epoch`; the one before stays until this one is complete."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    name = f"epoch-{epoch:05d}.pt"
    write_whole(folder / name, content)
    note = {"file": name, "epoch": epoch, "sha256": hashlib.sha256(content).hexdigest()}
    write_whole(folder / _NAMES, json.dumps(note).encode())
    for old in folder.glob("epoch-*.pt"):
        if old.name != name:
            old.unlink()


def load(folder: Path) -> dict[str, Any] | None:
    """The latest complete state, or None where there is none yet."""
    note_path = folder / _NAMES
    if not os.path.lexists(note_path):
        return None
    damage = (OSError, ValueError, RecursionError)
    with explained(f"the checkpoint in {folder} cannot be read", ADVICE, *damage):
        note = mapping(json.loads(read_text(note_path)), _NAMES)
        name = note.get("file")
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise ValueError(f"file of {_NAMES} must be the name of a checkpoint beside it, found {shortened(name)}")
        path = folder / name
        content = read_bytes(path, largest=None)
    if hashlib.sha256(content).hexdigest() != note.get("sha256"):
        raise ValueError(f"the checkpoint {path} is damaged (its sha256 is not the recorded one); {ADVICE}")
    with restoring(path):
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return dict(mapping(state, "it"))


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """What goes wrong in the block is told as a fault of the checkpoint at `path`: its content may be anything."""
    try:
        with explained(f"the checkpoint {path} does not hold the state of this run", ADVICE, Exception):
            yield
    except ValueError as error:
        if isinstance(error.__cause__, torch.OutOfMemoryError):  # no fault of the checkpoint
            raise error.__cause__ from None
        raise
