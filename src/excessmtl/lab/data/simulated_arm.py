"""`simulated-arm`: torques of a simulated 7-joint arm, the stand-in for SARCOS.

Inverse dynamics by the recursive Newton-Euler algorithm, for many states at once: the outward pass carries velocities
and accelerations from the base to the hand, the inward pass the forces back (Craig, Introduction to Robotics, chapter
6). Gravity enters as an upward acceleration of the base.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from excessmtl.lab.data.base import Benchmark, Recipe, Split, benchmark, columns, standardise
from excessmtl.lab.data.kinds import regression
from excessmtl.lab.data.networks import MLP
from excessmtl.lab.data.tasks import Task

Array = NDArray[np.float64]
JOINTS = 7
INPUTS = 3 * JOINTS
"""Positions, velocities and accelerations."""
_Z = np.array([0.0, 0.0, 1.0])
SIZES = {"small": (6_000, 1_000, 1_500), "paper": (44_484, 4_449, 4_449)}
_ROWS_PER_MOTION = 50
_SECONDS = 5.0
_WAVES = 3
_HOME = np.array([0.0, 0.6, 0.0, 1.3, 0.0, 0.7, 0.0])


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
    n, joints = q.shape
    omega, domega, accel = np.zeros((n, 3)), np.zeros((n, 3)), np.tile(arm.gravity * _Z, (n, 1))
    rotations, forces, moments = [], [], []
    for i in range(joints):
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
    torque = np.empty((n, joints))
    force, moment = np.zeros((n, 3)), np.zeros((n, 3))
    for i in reversed(range(joints)):
        if i + 1 < joints:
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


def seven_joint_arm() -> Arm:
    """An arm of human size with alternating joint axes and a hand held off its last axis."""
    mass = np.array([4.2, 3.8, 3.0, 2.6, 1.7, 1.4, 0.8])
    sides = np.array([[13, 13, 22], [12, 22, 12], [11, 11, 22], [10, 20, 10], [9, 9, 20], [8, 9, 8], [6, 12, 10]])
    squares = (sides / 100) ** 2
    # Of solid boxes of these masses and side lengths, which are in centimetres.
    inertia = mass[:, None] / 12 * (squares.sum(axis=1, keepdims=True) - squares)
    right = np.pi / 2
    return Arm(
        twist=np.array([0, -right, right, right, -right, -right, right]),
        length=np.array([0, 0, 0, 0.02, -0.02, 0, 0.03]),
        offset=np.array([0.34, 0, 0.38, 0, 0.36, 0, 0.08]),
        mass=mass,
        centre=np.array([[0, -2, -7], [0, -6, 3], [1, 2, -9], [0, 7, 2], [1, -2, -10], [0, 1, 2], [2, 5, 6]]) / 100,
        inertia=np.stack([np.diag(row) for row in inertia]),
        viscous=np.array([1.2, 1.2, 0.8, 0.8, 0.3, 0.2, 0.1]),
        dry=np.array([1.5, 1.5, 1.0, 1.0, 0.4, 0.3, 0.15]),
    )


def motions(rows: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Positions, velocities and accelerations on smooth random motions around a working posture."""
    count = -(-rows // _ROWS_PER_MOTION)
    shape = (count, 1, JOINTS, _WAVES)
    pulse = 2 * np.pi * rng.uniform(0.1, 0.7, shape)
    amplitude = rng.uniform(0.1, 0.6, shape) / (0.5 + pulse)
    phase = pulse * np.linspace(0, _SECONDS, _ROWS_PER_MOTION)[:, None, None] + rng.uniform(0, 2 * np.pi, shape)
    centre = _HOME + rng.uniform(-0.4, 0.4, (count, 1, JOINTS))
    q = centre + (amplitude * np.sin(phase)).sum(axis=-1)
    qd = (amplitude * pulse * np.cos(phase)).sum(axis=-1)
    qdd = -(amplitude * pulse**2 * np.sin(phase)).sum(axis=-1)
    first, second, third = (x.reshape(-1, JOINTS)[:rows] for x in (q, qd, qdd))
    return first, second, third


def arm_benchmark(name: str, source: str, inputs: Sequence[Tensor], torques: Sequence[Tensor]) -> Benchmark:
    """From the inputs and the torques of the training, validation and test rows, which are standardised here."""
    tasks = tuple(Task(f"joint_{joint}", 1, regression) for joint in range(1, JOINTS + 1))
    targets = [columns([task.name for task in tasks], own) for own in standardise(*torques)]
    return Benchmark(
        name,
        source,
        tasks,
        *map(Split, standardise(*inputs), targets),
        recipe=Recipe(learning_rate=1e-3, weight_decay=1e-2, batch_size=128, epochs=100),
        noisy_tasks=("joint_1", "joint_2"),
        build_trunk=lambda: MLP(INPUTS),
        build_head=lambda task: nn.Linear(128, task.outputs),
    )


@benchmark("simulated-arm", "inverse dynamics of a simulated 7-joint arm: 21 inputs, 7 torques")
def load(seed: int, *, size: str = "small") -> Benchmark:
    """Simulate the arm.

    Args:
        seed: of the motions. Each split has motions of its own.
        size: "small" (6,000 training rows) or "paper" (44,484, as many as SARCOS has).
    """
    if size not in SIZES:
        raise ValueError(f"size is {size!r}: choose one of {', '.join(SIZES)}")
    arm, inputs, torques = seven_joint_arm(), [], []
    for rows, stream in zip(SIZES[size], np.random.SeedSequence(seed).spawn(3), strict=True):
        state = motions(rows, np.random.default_rng(stream))
        inputs.append(torch.from_numpy(np.concatenate(state, axis=1)))
        torques.append(torch.from_numpy(inverse_dynamics(arm, *state)))
    return arm_benchmark("simulated-arm", f"simulated 7-joint arm, {SIZES[size][0]:,} rows", inputs, torques)
