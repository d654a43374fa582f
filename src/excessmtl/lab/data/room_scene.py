"""Random rooms with furniture made of boxes, a lamp and a camera.

The room spans from the origin to `size`, in metres, with z up; the camera stands near the wall y = 0 and looks
along y. Every box is turned about the vertical only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pattern = Literal["plain", "planks", "tiles", "fabric", "spines", "window", "picture", "door"]
CLASSES = (
    *("wall", "floor", "ceiling", "window", "door", "picture"),
    *("table", "chair", "bed", "sofa", "books", "tv", "other"),
)
_WOODS = np.array([[0.55, 0.36, 0.2], [0.42, 0.26, 0.15], [0.72, 0.55, 0.36], [0.85, 0.8, 0.72]])
_WHITE = np.array([0.92, 0.92, 0.9])


@dataclass(frozen=True)
class Box:
    """A box standing in the room, or the room itself seen from inside."""

    label: str
    centre: Array
    half: Array
    yaw: float
    colour: Array
    accent: Array
    pattern: Pattern = "plain"


@dataclass
class Place:
    """A spot to furnish: `x` runs along the wall behind it, `y` into the room, `z` up."""

    origin: Array
    yaw: float
    boxes: list[Box] = field(default_factory=list)

    def add(
        self,
        label: str,
        low: tuple[float, float, float],
        high: tuple[float, float, float],
        colour: Array,
        accent: Array | None = None,
        pattern: Pattern = "plain",
    ) -> None:
        """A box between two corners given in the spot's own coordinates."""
        a, b = np.array(low), np.array(high)
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        centre = self.origin + np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ ((a + b) / 2)
        accent = colour * 0.7 if accent is None else accent
        self.boxes.append(Box(label, centre, (b - a) / 2, self.yaw, colour, accent, pattern))


def _cloth(rng: np.random.Generator) -> Array:
    """A colour for anything that is not wood."""
    return rng.uniform(0.15, 0.85, 3)


def _wooden(rng: np.random.Generator) -> Array:
    """The colour of some wood."""
    return np.asarray(_WOODS[rng.integers(len(_WOODS))] * rng.uniform(0.8, 1.1))


def _legs(at: Place, label: str, w: float, d: float, top: float, thick: float, colour: Array) -> None:
    for x in (-w / 2, w / 2 - thick):
        for y in (0.0, d - thick):
            at.add(label, (x, y, 0), (x + thick, y + thick, top), colour)


def _bed(at: Place, w: float, rng: np.random.Generator) -> None:
    colour, wood, length = _cloth(rng), _wooden(rng), rng.uniform(1.8, 2.1)
    at.add("bed", (-w / 2, 0, 0), (w / 2, 0.08, rng.uniform(0.8, 1.2)), wood)
    at.add("bed", (-w / 2, 0.08, 0), (w / 2, length, 0.28), wood)
    at.add("bed", (-w / 2, 0.08, 0.28), (w / 2, length, 0.52), colour, pattern="fabric")
    for x in np.linspace(-w / 4, w / 4, 2):
        at.add("bed", (x - 0.22, 0.12, 0.52), (x + 0.22, 0.5, 0.64), _WHITE)


def _sofa(at: Place, w: float, rng: np.random.Generator) -> None:
    colour, d = _cloth(rng), rng.uniform(0.8, 1.0)
    at.add("sofa", (-w / 2, 0, 0.06), (w / 2, d, 0.42), colour, pattern="fabric")
    at.add("sofa", (-w / 2, 0, 0.42), (w / 2, 0.24, rng.uniform(0.75, 0.95)), colour, pattern="fabric")
    for x in (-w / 2, w / 2 - 0.2):
        at.add("sofa", (x, 0, 0.06), (x + 0.2, d, 0.62), colour * 0.95, pattern="fabric")


def _shelf(at: Place, w: float, rng: np.random.Generator) -> None:
    wood, h = _wooden(rng), rng.uniform(1.3, 2.1)
    at.add("books", (-w / 2, 0, 0), (w / 2, 0.3, h), _cloth(rng), wood, "spines")


def _television(at: Place, w: float, rng: np.random.Generator) -> None:
    h = rng.uniform(0.4, 0.6)
    at.add("other", (-w / 2, 0.02, 0), (w / 2, 0.45, h), _wooden(rng), pattern="planks")
    wide = w * rng.uniform(0.6, 0.85)
    dark = np.array([0.04, 0.05, 0.07]) * rng.uniform(0.8, 2.5)
    at.add("tv", (-wide / 2, 0.15, h + 0.05), (wide / 2, 0.22, h + 0.05 + 0.58 * wide), dark)


def _cabinet(at: Place, w: float, rng: np.random.Generator) -> None:
    at.add("other", (-w / 2, 0, 0), (w / 2, rng.uniform(0.35, 0.6), rng.uniform(0.5, 1.9)), _cloth(rng))


def _door(at: Place, w: float, rng: np.random.Generator) -> None:
    wood = _wooden(rng)
    at.add("door", (-0.45, 0, 0), (0.45, 0.05, 2.05), wood, wood * 0.6, "door")


_Maker = Callable[[Place, float, np.random.Generator], None]
_STANDING: dict[_Maker, tuple[float, float]] = {
    _bed: (1.2, 1.9),
    _sofa: (1.5, 2.3),
    _shelf: (0.8, 1.5),
    _television: (1.1, 1.7),
    _cabinet: (0.5, 1.2),
    _door: (0.95, 1.05),
}
"""What can stand at a wall -> between which widths, in metres."""
_LOW: tuple[_Maker, ...] = (_bed, _sofa)
"""What leaves room for a window or a picture above it."""


def _hang(at: Place, w: float, rng: np.random.Generator) -> None:
    """A window or a picture above what stands here."""
    wide, bottom = w * rng.uniform(0.5, 0.9), rng.uniform(1.25, 1.4)
    if rng.random() < 0.5:
        sky = np.array([0.75, 0.87, 1.0]) * rng.uniform(0.85, 1)
        at.add("window", (-wide / 2, 0, bottom), (wide / 2, 0.04, 2.2), sky, _WHITE, "window")
    else:
        high = bottom + rng.uniform(0.35, 0.7)
        at.add("picture", (-wide / 2, 0, bottom), (wide / 2, 0.03, high), _cloth(rng), _cloth(rng), "picture")


def _dining(at: Place, rng: np.random.Generator) -> None:
    """A table with a few things on it and chairs around it."""
    wood, w, d, h = _wooden(rng), rng.uniform(0.9, 1.6), rng.uniform(0.7, 0.9), rng.uniform(0.68, 0.76)
    at.add("table", (-w / 2, 0, h - 0.05), (w / 2, d, h), wood, pattern="planks")
    _legs(at, "table", w, d, h - 0.05, 0.07, wood * 0.9)
    for _ in range(rng.integers(3)):
        x, y, side = rng.uniform(-w / 3, w / 3), rng.uniform(0.1, d - 0.3), rng.uniform(0.1, 0.25)
        high, colour = h + rng.uniform(0.05, 0.3), _cloth(rng)
        if rng.random() < 0.4:
            at.add("books", (x, y, h), (x + side, y + side, high), colour, _WHITE, "spines")
        else:
            at.add("other", (x, y, h), (x + side, y + side, high), colour)
    seat = _cloth(rng) if rng.random() < 0.5 else _wooden(rng)
    for x, y, back in ((-w / 4, -0.4, 0), (w / 4, d - 0.05, 1), (w / 4, -0.35, 0), (-w / 4, d, 1)):
        if rng.random() < 0.6:
            _chair(at, x, y, back, seat)


def _chair(at: Place, x: float, y: float, back: int, colour: Array) -> None:
    c, s = np.cos(at.yaw), np.sin(at.yaw)
    chair = Place(at.origin + np.array([c * x - s * y, s * x + c * y, 0]), at.yaw, at.boxes)
    chair.add("chair", (-0.22, 0, 0.42), (0.22, 0.44, 0.47), colour)
    near = 0.4 * back
    chair.add("chair", (-0.22, near, 0.47), (0.22, near + 0.04, 0.95), colour * 0.95)
    _legs(chair, "chair", 0.44, 0.44, 0.42, 0.04, colour * 0.8)


@dataclass(frozen=True)
class Scene:
    """A room with its furniture, a lamp and a camera."""

    size: Array
    boxes: tuple[Box, ...]
    floor: Box
    walls: Box
    ceiling: Box
    lamp: Array
    camera: Array
    rotation: Array
    """Columns: the camera's axes right, down and forward in the room."""


def _furnish_wall(start: Array, along: Array, length: float, yaw: float, rng: np.random.Generator) -> list[Box]:
    boxes: list[Box] = []
    position = rng.uniform(0, 0.4)
    while True:
        make = list(_STANDING)[rng.integers(len(_STANDING))] if rng.random() < 0.8 else None
        w = rng.uniform(*_STANDING[make]) if make else rng.uniform(0.6, 1.4)
        if position + w > length:
            return boxes
        at = Place(start + along * (position + w / 2), yaw)
        if make:
            make(at, w, rng)
        if (make is None or make in _LOW) and rng.random() < 0.8:
            _hang(at, w, rng)
        boxes += at.boxes
        position += w + rng.uniform(0.05, 0.5)


def _view(size: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    camera = np.array([size[0] * rng.uniform(0.25, 0.75), rng.uniform(0.2, 0.8), rng.uniform(1.2, 1.8)])
    yaw = rng.uniform(-0.45, 0.45) - 0.5 * (camera[0] / size[0] - 0.5)
    pitch, roll = rng.uniform(-0.35, -0.05), rng.normal(0, 0.03)
    forward = np.array([np.sin(yaw) * np.cos(pitch), np.cos(yaw) * np.cos(pitch), np.sin(pitch)])
    right = np.array([np.cos(yaw), -np.sin(yaw), 0])
    down = np.cross(forward, right)
    c, s = np.cos(roll), np.sin(roll)
    return camera, np.stack([c * right + s * down, c * down - s * right, forward], axis=1)


def random_scene(rng: np.random.Generator) -> Scene:
    """A room that has never been seen before."""
    size = rng.uniform([3.2, 4.0, 2.4], [5.5, 6.5, 2.9])
    width, depth, _ = size
    x, y = np.array([1.0, 0, 0]), np.array([0, 1.0, 0])
    boxes = _furnish_wall(y * depth + x * 0.7, x, width - 1.4, np.pi, rng)
    boxes += _furnish_wall(y * 1.6, y, depth - 2.4, -np.pi / 2, rng)
    boxes += _furnish_wall(x * width + y * 1.6, y, depth - 2.4, np.pi / 2, rng)
    if rng.random() < 0.8:
        middle = Place(np.array([width * rng.uniform(0.35, 0.65), depth * rng.uniform(0.45, 0.55), 0]), 0)
        middle.yaw = rng.uniform(-np.pi, np.pi)
        _dining(middle, rng)
        boxes += middle.boxes
    paint = np.clip(rng.uniform(0.6, 0.95) + rng.normal(0, 0.06, 3), 0, 1)
    ground = _wooden(rng) if rng.random() < 0.6 else _cloth(rng) * 0.6 + 0.2
    laid: Pattern = "planks" if rng.random() < 0.6 else "tiles"
    camera, rotation = _view(size, rng)
    return Scene(
        size=size,
        boxes=tuple(boxes),
        floor=Box("floor", size / 2, size / 2, 0.0, ground, ground * 0.8, laid),
        walls=Box("wall", size / 2, size / 2, 0.0, paint, paint),
        ceiling=Box("ceiling", size / 2, size / 2, 0.0, _WHITE, _WHITE),
        lamp=size * [rng.uniform(0.3, 0.7), rng.uniform(0.3, 0.6), 0.93],
        camera=camera,
        rotation=rotation,
    )
