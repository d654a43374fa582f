"""Checkpoints that are whole or not there, and that know when they have been damaged."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from excessmtl.files import write_whole

_NAMES = "latest.json"


class CheckpointError(Exception):
    """The checkpoint cannot be used; the message says why and what to do."""


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
    if not note_path.exists():
        return None
    advice = "delete the run's folder and start again, or restore the file"
    try:
        note = json.loads(note_path.read_text(encoding="utf-8"))
        path = folder / note["file"]
        content = path.read_bytes()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint in {folder} cannot be read ({error}); {advice}") from error
    if hashlib.sha256(content).hexdigest() != note.get("sha256"):
        raise CheckpointError(f"the checkpoint {path} is damaged (its sha256 is not the recorded one); {advice}")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state
