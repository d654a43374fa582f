"""`simulated-arm`: torques of a simulated 7-joint arm, the stand-in for SARCOS."""

from pathlib import Path

import numpy as np
import torch

from excessmtl.lab.data.arm_dynamics import Arm, Array, inverse_dynamics
from excessmtl.lab.data.arm_tasks import JOINTS, arm_benchmark
from excessmtl.lab.data.base import Benchmark, benchmark

SIZES = {"small": (6_000, 1_000, 1_500), "paper": (44_484, 4_449, 4_449)}
_ROWS_PER_MOTION = 50
_SECONDS = 5.0
_WAVES = 3
_HOME = np.array([0.0, 0.6, 0.0, 1.3, 0.0, 0.7, 0.0])


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
        centre=np.array(
            [
                [0.00, -0.02, -0.07],
                [0.00, -0.06, 0.03],
                [0.01, 0.02, -0.09],
                [0.00, 0.07, 0.02],
                [0.01, -0.02, -0.10],
                [0.00, 0.01, 0.02],
                [0.02, 0.05, 0.06],
            ]
        ),
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


@benchmark("simulated-arm", "inverse dynamics of a simulated 7-joint arm: 21 inputs, 7 torques")
def load(data: Path | None, seed: int, *, size: str = "small") -> Benchmark:
    """Simulate the arm.

    Args:
        data: not used; everything is simulated.
        seed: of the motions. Each split has motions of its own.
        size: "small" (6,000 training rows) or "paper" (44,484, as many as SARCOS has).
    """
    if data is not None:
        raise ValueError(f"--data {data}: simulated-arm is simulated, not read; leave --data out.")
    if size not in SIZES:
        raise ValueError(f"size is {size!r}: choose one of {', '.join(SIZES)}")
    arm, inputs, torques = seven_joint_arm(), [], []
    for rows, stream in zip(SIZES[size], np.random.SeedSequence(seed).spawn(3), strict=True):
        state = motions(rows, np.random.default_rng(stream))
        inputs.append(torch.from_numpy(np.concatenate(state, axis=1)))
        torques.append(torch.from_numpy(inverse_dynamics(arm, *state)))
    return arm_benchmark("simulated-arm", f"simulated 7-joint arm, {SIZES[size][0]:,} rows", inputs, torques)
