"""Inverse dynamics of a serial arm by the recursive Newton-Euler algorithm, for many states at once.

The outward pass carries velocities and accelerations from the base to the hand, the inward pass the forces
back (Craig, Introduction to Robotics, chapter 6). Gravity enters as an upward acceleration of the base.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_Z = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Arm:
    """Geometry and masses of an arm whose joints all turn; one entry (or row) per link.

    Frames follow Craig's convention: link i is reached from link i-1 by a turn of `twist` about x and a shift
    of `length` along it, then a turn by the joint angle about z and a shift of `offset` along it.
    """

    twist: Array
    length: Array
    offset: Array
    mass: Array
    centre: Array
    """Centre of mass in the link's frame, metres."""
    inertia: Array
    """Inertia about the centre of mass in the link's frame, (links, 3, 3), kg m^2."""
    viscous: Array
    """Friction torque per joint speed, N m s."""
    dry: Array
    """Friction torque that only depends on the direction of motion, N m."""
    gravity: float = 9.81

    @property
    def joints(self) -> int:
        """How many joints the arm has."""
        return len(self.mass)

    def rotation(self, joint: int, q: Array) -> Array:
        """(n, 3, 3): turns vectors of link `joint`'s frame into the frame of the link before it."""
        ca, sa = np.cos(self.twist[joint]), np.sin(self.twist[joint])
        c, s, zero = np.cos(q), np.sin(q), np.zeros_like(q)
        rows = [[c, -s, zero], [s * ca, c * ca, zero - sa], [s * sa, c * sa, zero + ca]]
        return np.moveaxis(np.array(rows), -1, 0)

    def origin(self, joint: int) -> Array:
        """Where link `joint`'s frame begins, in the frame of the link before it."""
        a, alpha, d = self.length[joint], self.twist[joint], self.offset[joint]
        return np.array([a, -d * np.sin(alpha), d * np.cos(alpha)])

    def friction(self, qd: Array) -> Array:
        """Torques that friction takes; the dry part is smooth around rest, as in identified models."""
        return self.viscous * qd + self.dry * np.tanh(qd / 0.1)


def inverse_dynamics(arm: Arm, q: Array, qd: Array, qdd: Array) -> Array:
    """Joint torques (n, joints) that produce the accelerations `qdd` at the states (`q`, `qd`)."""
    n = len(q)
    omega, domega, accel = np.zeros((n, 3)), np.zeros((n, 3)), np.tile(arm.gravity * _Z, (n, 1))
    rotations, forces, moments = [], [], []
    for i in range(arm.joints):
        rotation, origin = arm.rotation(i, q[:, i]), arm.origin(i)
        accel = _into(rotation, accel + np.cross(domega, origin) + np.cross(omega, np.cross(omega, origin)))
        omega, domega = _into(rotation, omega), _into(rotation, domega)
        spin = qd[:, i, None] * _Z
        domega = domega + np.cross(omega, spin) + qdd[:, i, None] * _Z
        omega = omega + spin
        centre, inertia = arm.centre[i], arm.inertia[i]
        at_centre = accel + np.cross(domega, centre) + np.cross(omega, np.cross(omega, centre))
        rotations.append(rotation)
        forces.append(arm.mass[i] * at_centre)
        moments.append(domega @ inertia + np.cross(omega, omega @ inertia))
    torque = np.empty((n, arm.joints))
    force, moment = np.zeros((n, 3)), np.zeros((n, 3))
    for i in reversed(range(arm.joints)):
        if i + 1 < arm.joints:
            force, moment = _outof(rotations[i + 1], force), _outof(rotations[i + 1], moment)
            moment = moment + np.cross(arm.origin(i + 1), force)
        moment = moment + moments[i] + np.cross(arm.centre[i], forces[i])
        force = force + forces[i]
        torque[:, i] = moment[:, 2]
    return torque + arm.friction(qd)


def _into(rotation: Array, vector: Array) -> Array:
    turned: Array = np.einsum("nij,ni->nj", rotation, vector)
    return turned


def _outof(rotation: Array, vector: Array) -> Array:
    turned: Array = np.einsum("nij,nj->ni", rotation, vector)
    return turned
