"""Random furnished rooms with a lamp and a camera.

The room spans from the origin to `size`, in metres, with z up; the camera stands near the wall y = 0 and looks
along y. Every box is turned about the vertical only.
"""

from dataclasses import dataclass

import numpy as np

from excessmtl.lab.data.room_furniture import (
    LOW,
    STANDING,
    WHITE,
    Array,
    Box,
    Pattern,
    Place,
    cloth,
    dining,
    hang,
    wooden,
)


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
        make = list(STANDING)[rng.integers(len(STANDING))] if rng.random() < 0.8 else None
        w = rng.uniform(*STANDING[make]) if make else rng.uniform(0.6, 1.4)
        if position + w > length:
            return boxes
        at = Place(start + along * (position + w / 2), yaw)
        if make:
            make(at, w, rng)
        if (make is None or make in LOW) and rng.random() < 0.8:
            hang(at, w, rng)
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
        dining(middle, rng)
        boxes += middle.boxes
    paint = np.clip(rng.uniform(0.6, 0.95) + rng.normal(0, 0.06, 3), 0, 1)
    ground = wooden(rng) if rng.random() < 0.6 else cloth(rng) * 0.6 + 0.2
    laid: Pattern = "planks" if rng.random() < 0.6 else "tiles"
    camera, rotation = _view(size, rng)
    return Scene(
        size=size,
        boxes=tuple(boxes),
        floor=Box("floor", size / 2, size / 2, 0.0, ground, ground * 0.8, laid),
        walls=Box("wall", size / 2, size / 2, 0.0, paint, paint),
        ceiling=Box("ceiling", size / 2, size / 2, 0.0, WHITE, WHITE),
        lamp=size * [rng.uniform(0.3, 0.7), rng.uniform(0.3, 0.6), 0.93],
        camera=camera,
        rotation=rotation,
    )
