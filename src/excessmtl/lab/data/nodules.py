"""Outlines of lung nodules: what their shape says in numbers, and which outlines are of the same nodule."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[np.float64]
_WAVES = 8
"""How many waves of the outline's radius are features."""
_READERS = 4
SHAPE_FEATURES = (
    *("volume", "diameter", "slices", "largest_area", "perimeter", "height", "width", "depth", "elongation"),
    *("flatness", "compactness", "mean_compactness", "radius_spread", "points", "exclusions", "drift", "area_spread"),
    *("slice_thickness", "pixel_spacing", "contrast"),
    *(f"wave_{number}" for number in range(1, _WAVES + 1)),
)


@dataclass(frozen=True)
class Reading:
    """A nodule as one radiologist has outlined and rated it; lengths in millimetres."""

    scan: int
    centre: _Array
    radius: float
    features: _Array
    ratings: _Array


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
    round_ones = 4 * np.pi * areas / np.maximum(lengths, 1e-6) ** 2
    centres = np.array([points.mean(0) for _, points in slices])
    everything = np.concatenate([points for _, points in slices])
    size = np.array([*np.ptp(everything, axis=0), np.ptp(heights) + step])
    volume = float(areas.sum() * step)
    diameter = float(np.cbrt(6 * max(volume, 1e-6) / np.pi))
    largest = int(areas.argmax())
    radii = _radii(slices[largest][1])
    waves = np.abs(np.fft.rfft(radii))[1 : _WAVES + 1] / max(radii.sum(), 1e-6)
    features = [
        np.log(max(volume, 1e-6)),
        np.log(diameter),
        np.log(len(heights)),
        np.log(max(areas[largest], 1e-6)),
        np.log(max(lengths[largest], 1e-6)),
        *np.log(np.maximum(size, 1e-6)),
        np.log(max(size[0], 1e-6) / max(size[1], 1e-6)),
        np.log(max(size[2], 1e-6) / max(size[:2].mean(), 1e-6)),
        round_ones[largest],
        np.average(round_ones, weights=np.maximum(areas, 1e-6)),
        radii.std() / max(radii.mean(), 1e-6),
        np.log(len(everything)),
        np.log1p(holes),
        centres.std(0).sum() / diameter,
        areas.std() / max(areas.mean(), 1e-6),
        thickness,
        spacing,
        float(contrast),
        *waves,
    ]
    centre = np.array([*everything.mean(0), heights.mean()])
    return centre, float(size.max() / 2), np.array(features, np.float64)


def nodules(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Readings of the same nodule together: in one scan, each centre within the radius of another.

    Groups of more than four readings, which no nodule has, are two nodules side by side and left out.
    """
    by_scan: dict[int, list[Reading]] = {}
    for reading in readings:
        by_scan.setdefault(reading.scan, []).append(reading)
    found = []
    for own in by_scan.values():
        groups: list[list[Reading]] = []
        for reading in own:
            near = [group for group in groups if any(_same(reading, other) for other in group)]
            apart = [group for group in groups if all(group is not one for one in near)]
            groups = [*apart, [*itertools.chain.from_iterable(near), reading]]
        found += [group for group in groups if len(group) <= _READERS]
    return found


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
