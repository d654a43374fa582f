"""Pictures of rooms by casting one ray per pixel: colour, class, exact depth and exact normals."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excessmtl.lab.data.room_furniture import CLASSES
from excessmtl.lab.data.room_scene import Scene
from excessmtl.lab.data.room_texture import paint

FOCAL = 0.8
"""Focal length in image widths: a horizontal view of 64 degrees."""
_RAYS_AT_ONCE = 1 << 12
_NEAR = 1e-3

Array = NDArray[np.float32]
Index = NDArray[np.intp]
Components = Sequence[Array]
"""x, y and z of many vectors, apart: much faster here than one array with a last dimension of three."""


class View(NamedTuple):
    """What the camera sees. Its axes, and those of the normals: x right, y down, z forward."""

    image: NDArray[np.uint8]
    """(3, height, width)."""
    label: NDArray[np.int8]
    """(height, width): an index into CLASSES."""
    depth: Array
    """(1, height, width): metres along the optical axis."""
    normals: Array
    """(3, height, width): unit vectors out of the surface."""


def pixel_rays(height: int, width: int) -> Array:
    """(height * width, 3): the camera's ray through the middle of each pixel, one metre deep."""
    x = (np.arange(width) + 0.5 - width / 2) / (FOCAL * width)
    y = (np.arange(height) + 0.5 - height / 2) / (FOCAL * width)
    across, down = np.meshgrid(x, y)
    return _float([across.ravel(), down.ravel(), np.ones(across.size)]).T


def render(scene: Scene, height: int, width: int, rng: np.random.Generator) -> View:
    """One picture; `rng` gives the exposure and the noise of the sensor."""
    surfaces = _Surfaces(scene)
    rotation, camera = _float(scene.rotation), _float(scene.camera)
    rays = pixel_rays(height, width) @ rotation.T
    parts = [surfaces.look(camera, rays[i : i + _RAYS_AT_ONCE]) for i in range(0, len(rays), _RAYS_AT_ONCE)]
    depth, normals, which, colour = (np.concatenate(part) for part in zip(*parts, strict=True))
    exposure = _float(rng.uniform(0.85, 1.15) * (1 + rng.normal(0, 0.03, 3)))
    seen = colour * exposure + rng.normal(0, 0.012, colour.shape)
    image = (np.clip(seen, 0, 1) * 255).round().astype(np.uint8)
    shape = (-1, height, width)
    return View(
        np.ascontiguousarray(image.T).reshape(shape),
        surfaces.label[which].reshape(height, width),
        depth.reshape(shape),
        np.ascontiguousarray((normals @ rotation).T).reshape(shape),
    )


class _Surfaces:
    """The boxes of a scene as arrays: first the furniture, then the room as walls, floor and ceiling."""

    def __init__(self, scene: Scene) -> None:
        boxes = (*scene.boxes, scene.walls, scene.floor, scene.ceiling)
        self.room = len(scene.boxes)
        self.centre = _float([box.centre for box in boxes])
        self.half = _float([box.half for box in boxes])
        self.cos, self.sin = _float(np.cos([box.yaw for box in boxes])), _float(np.sin([box.yaw for box in boxes]))
        self.colour = _float([box.colour for box in boxes])
        self.accent = _float([box.accent for box in boxes])
        self.pattern = [box.pattern for box in boxes]
        self.label = np.array([CLASSES.index(box.label) for box in boxes], dtype=np.int8)
        self.lamp = _float(scene.lamp)

    def look(self, camera: Array, rays: Array) -> tuple[Array, Array, Index, Array]:
        """Depth, normal (in the room's axes), surface and colour where each ray ends."""
        depth, which = self.cast(camera[None], rays)
        ways = self.local(rays.T, which)
        slabs = map(_slab, self.local((camera - self.centre[which]).T, which), ways, self.half[which].T)
        enter, leave = zip(*slabs, strict=True)
        inside = which == self.room
        axis = np.where(inside, np.argmin(leave, axis=0), np.argmax(enter, axis=0))
        across = axis[:, None] == np.arange(3)
        # A visible face looks against the ray, whether it is a box seen from outside or the room from inside.
        normals = np.stack(self.outof((-np.sign(ways) * across.T), which), axis=1)
        which = which + (inside & (axis == 2)) * (1 + (rays[:, 2] > 0))
        points = camera + depth[:, None] * rays
        colour = self.light(points, normals, which) * self.texture(points, across, which)
        return depth, normals, which, colour

    def cast(self, origins: Array, rays: Array) -> tuple[Array, Index]:
        """How far along each ray the first surface is, and which box it belongs to."""
        boxes = np.arange(self.room + 1)[:, None]
        centres, halves = (np.moveaxis(x[boxes], -1, 0) for x in (self.centre, self.half))
        starts = self.local([o - c for o, c in zip(origins.T, centres, strict=True)], boxes)
        ways = self.local(rays.T, boxes)
        enter, leave = zip(*map(_slab, starts, ways, halves), strict=True)
        first, last = reduce(np.maximum, enter), reduce(np.minimum, leave)
        distance = np.where((first < last) & (first > _NEAR), first, np.float32(np.inf))
        distance[self.room] = last[self.room]
        which = distance.argmin(axis=0)
        return distance[which, np.arange(len(rays))], which

    def light(self, points: Array, normals: Array, which: Index) -> Array:
        """(n, 1): a lamp with shadows and distance, and light from all around; windows shine by themselves."""
        towards = self.lamp - points
        far = np.linalg.norm(towards, axis=1)
        facing = np.maximum((normals * towards).sum(axis=1) / far, 0)
        # Starting a little off the surface keeps it from shading itself.
        blocked = self.cast(points + 2 * _float(_NEAR) * normals, towards)[0] < 1
        lamp = facing * (1 - 0.75 * blocked) / (1 + 0.08 * far**2)
        light = 0.5 + 0.1 * normals[:, 2] + 0.75 * lamp
        return _float(np.where(self.label[which] == CLASSES.index("window"), 1.1, light))[:, None]

    def texture(self, points: Array, across: NDArray[np.bool_], which: Index) -> Array:
        """(n, 3): the colour of the surface itself; `across` marks the axis across the face."""
        local = np.stack(self.local((points - self.centre[which]).T, which), axis=1)
        place = local[~across].reshape(-1, 2)
        relative = (local / self.half[which])[~across].reshape(-1, 2)
        colour, accent = self.colour[which], self.accent[which]
        painted = np.empty_like(colour)
        patterns = sorted(set(self.pattern))
        number = np.array([patterns.index(name) for name in self.pattern])[which]
        for i, name in enumerate(patterns):
            at = (number == i).nonzero()[0]
            painted[at] = paint(name, place[at], relative[at], colour[at], accent[at])
        return painted

    def local(self, vector: Components | Array, box: Index) -> Components:
        """A vector of the room in the axes of these boxes."""
        (x, y, z), c, s = vector, self.cos[box], self.sin[box]
        return c * x + s * y, c * y - s * x, z

    def outof(self, vector: Components | Array, box: Index) -> Components:
        """The way back."""
        (x, y, z), c, s = vector, self.cos[box], self.sin[box]
        return c * x - s * y, c * y + s * x, z


def _slab(start: Array, way: Array, half: Array) -> tuple[Array, Array]:
    """Where a ray enters and leaves the space between two faces of a box."""
    inverse = _float(1 / np.where(way == 0, _float(1e-9), way))
    middle, reach = -start * inverse, np.abs(half * inverse)
    return middle - reach, middle + reach


def _float(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float32)
