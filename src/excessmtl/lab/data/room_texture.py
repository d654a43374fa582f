"""How the surfaces of the synthetic rooms look: a colour for a point on a face of a box."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excessmtl.lab.data.room_furniture import Pattern

Array = NDArray[np.float32]


def _float(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float32)


def _scatter(i: Array, j: Array, salt: int) -> Array:
    """A number in [0, 1) for each cell of a grid, without order to the eye."""
    cell = (i.astype(np.int64) % 997) * 613 + (j.astype(np.int64) % 997) * 389 + salt * 101
    return _float((cell * cell + 57 * cell) % 1009 / 1009)


def _mix(share: ArrayLike, colour: Array, accent: Array) -> Array:
    return _float(colour + np.clip(_float(share), 0, 1)[:, None] * (accent - colour))


def paint(pattern: Pattern, place: Array, relative: Array, colour: Array, accent: Array) -> Array:
    """Colours (n, 3) between 0 and 1.

    Args:
        pattern: what is painted.
        place: (n, 2), metres from the middle of the face.
        relative: (n, 2), the same divided by half the face's sides.
        colour: (n, 3), the main colour of the surface.
        accent: (n, 3), its second colour.
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
