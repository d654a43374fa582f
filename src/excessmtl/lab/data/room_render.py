"""Pictures of rooms by casting one ray per pixel: colour, class, exact depth and exact normals."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excessmtl.lab.data.room_scene import CLASSES, Pattern, Scene

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
        directions = self.local(rays.T, which)
        slabs = map(_slab, self.local((camera - self.centre[which]).T, which), directions, self.half[which].T)
        enter, leave = zip(*slabs, strict=True)
        inside = which == self.room
        axis = np.where(inside, np.argmin(leave, axis=0), np.argmax(enter, axis=0))
        across = axis[:, None] == np.arange(3)
        # A visible face looks against the ray, whether it is a box seen from outside or the room from inside.
        normals = np.stack(self.outof((-np.sign(directions) * across.T), which), axis=1)
        which = which + (inside & (axis == 2)) * (1 + (rays[:, 2] > 0))
        points = camera + depth[:, None] * rays
        colour = self.light(points, normals, which) * self.texture(points, across, which)
        return depth, normals, which, colour

    def cast(self, origins: Array, rays: Array) -> tuple[Array, Index]:
        """How far along each ray the first surface is, and which box it belongs to."""
        boxes = np.arange(self.room + 1)[:, None]
        centres, halves = (np.moveaxis(x[boxes], -1, 0) for x in (self.centre, self.half))
        starts = self.local([o - c for o, c in zip(origins.T, centres, strict=True)], boxes)
        directions = self.local(rays.T, boxes)
        enter, leave = zip(*map(_slab, starts, directions, halves), strict=True)
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
            painted[at] = _paint(name, place[at], relative[at], colour[at], accent[at])
        return painted

    def local(self, vector: Components | Array, box: Index) -> Components:
        """A vector of the room in the axes of these boxes."""
        (x, y, z), c, s = vector, self.cos[box], self.sin[box]
        return c * x + s * y, c * y - s * x, z

    def outof(self, vector: Components | Array, box: Index) -> Components:
        """A vector in the axes of these boxes, in those of the room."""
        (x, y, z), c, s = vector, self.cos[box], self.sin[box]
        return c * x - s * y, c * y + s * x, z


def _slab(start: Array, direction: Array, half: Array) -> tuple[Array, Array]:
    """Where a ray enters and leaves the space between two faces of a box."""
    inverse = _float(1 / np.where(direction == 0, _float(1e-9), direction))
    middle, reach = -start * inverse, np.abs(half * inverse)
    return middle - reach, middle + reach


def _float(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float32)


def _scatter(i: Array, j: Array, salt: int) -> Array:
    """A number in [0, 1) for each cell of a grid, without order to the eye."""
    cell = (i.astype(np.int64) % 997) * 613 + (j.astype(np.int64) % 997) * 389 + salt * 101
    return _float((cell * cell + 57 * cell) % 1009 / 1009)


def _mix(share: ArrayLike, colour: Array, accent: Array) -> Array:
    return _float(colour + np.clip(_float(share), 0, 1)[:, None] * (accent - colour))


def _paint(pattern: Pattern, place: Array, relative: Array, colour: Array, accent: Array) -> Array:
    """Colours (n, 3) between 0 and 1.

    `place`: (n, 2), metres from the middle of the face; `relative`: the same divided by half the face's sides.
    """
    (u, v), (a, b) = place.T, relative.T
    match pattern:
        case "plain":
            return _mix(0.15 * np.sin(3 * u + 1) * np.sin(2 * v), colour, accent)
        case "planks":
            row = np.floor(u / 0.14)
            piece = np.floor((v + 0.6 * _scatter(row, row, 1)) / 1.2)
            joint = u / 0.14 - row < 0.06
            wood = _mix(np.where(joint, 1, _scatter(row, piece, 2)), colour, accent)
            return _float(wood * (1 - 0.3 * joint[:, None]))
        case "tiles":
            return _mix((np.floor(u / 0.35) + np.floor(v / 0.35)) % 2, colour, accent)
        case "fabric":
            return _mix(0.5 + 0.5 * np.sin(60 * u) * np.sin(40 * v), colour, accent)
        case "spines":
            row, book = np.floor(v / 0.32), np.floor(u / 0.055)
            spine = np.stack([_scatter(book, row, salt) for salt in (3, 4, 5)], axis=-1)
            level = v / 0.32 - row
            gap = level > 0.73 + 0.25 * _scatter(book, row, 6)
            board = (level < 0.08) | (np.abs(a) > 0.95)
            return _mix(board, _mix(gap, 0.15 + 0.5 * spine + 0.2 * colour, accent * 0.25), accent)
        case "window":
            bars = (np.abs(a) > 0.92) | (np.abs(b) > 0.92) | (np.abs(a) < 0.04)
            trees = b < -0.45 + 0.15 * np.sin(9 * u)
            outside = _mix(trees, colour * (0.85 + 0.15 * b[:, None]), colour * _float([0.35, 0.5, 0.3]))
            return _mix(bars, outside, accent)
        case "picture":
            waves = np.sin(7 * a + 3 * b * b + 8 * colour[:, 0]) * np.cos(5 * b - 4 * a + 9 * accent[:, 1])
            frame = (np.abs(a) > 0.88) | (np.abs(b) > 0.88)
            return _mix(frame, _mix(0.5 + 0.5 * waves, colour, accent), accent * 0.3)
        case "door":
            low, high = np.abs(b + 0.5), np.abs(b - 0.45)
            panel = (np.abs(np.abs(a) - 0.68) < 0.05) & ((low < 0.38) | (high < 0.4))
            rail = (np.abs(a) < 0.7) & ((np.abs(low - 0.36) < 0.02) | (np.abs(high - 0.38) < 0.02))
            handle = (np.abs(a - 0.85) < 0.06) & (np.abs(b) < 0.02)
            return _float(_mix(panel | rail, colour, accent) * (1 - 0.8 * handle[:, None]))
