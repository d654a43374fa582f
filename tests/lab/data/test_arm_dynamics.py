"""The recursion against a Lagrangian written down from the arm's geometry alone."""

import numpy as np
import pytest

from excessmtl.lab.data.arm_dynamics import Arm, Array, inverse_dynamics
from excessmtl.lab.data.simulated_arm import JOINTS, seven_joint_arm

ARM = seven_joint_arm()
FRICTIONLESS = Arm(**{**vars(ARM), "viscous": np.zeros(JOINTS), "dry": np.zeros(JOINTS)})
WEIGHTLESS = Arm(**{**vars(FRICTIONLESS), "gravity": 0.0})


def states(n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-3, 3, (n, JOINTS)), rng.normal(size=(n, JOINTS)), rng.normal(size=(n, JOINTS))


def forward(q: Array) -> list[tuple[Array, Array, Array]]:
    """Orientation, joint position and centre of mass of every link in the world, for one posture."""
    links = []
    orientation, position = np.eye(3), np.zeros(3)
    for i in range(JOINTS):
        ca, sa, c, s = np.cos(ARM.twist[i]), np.sin(ARM.twist[i]), np.cos(q[i]), np.sin(q[i])
        about_x = np.array([[1, 0, 0], [0, ca, -sa], [0, sa, ca]])
        about_z = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        position = position + orientation @ about_x @ [ARM.length[i], 0, ARM.offset[i]]
        orientation = orientation @ about_x @ about_z
        links.append((orientation, position, position + orientation @ ARM.centre[i]))
    return links


def potential(q: Array) -> float:
    heights = [centre[2] for _, _, centre in forward(q)]
    return float(ARM.gravity * ARM.mass @ heights)


def mass_matrix(q: Array) -> Array:
    """From the Jacobians of the centres of mass."""
    links = forward(q)
    total = np.zeros((JOINTS, JOINTS))
    for i, (orientation, _, centre) in enumerate(links):
        axes = np.array([r[:, 2] if j <= i else np.zeros(3) for j, (r, _, _) in enumerate(links)])
        arms = np.array([np.cross(axes[j], centre - links[j][1]) for j in range(JOINTS)])
        inertia = orientation @ ARM.inertia[i] @ orientation.T
        total += ARM.mass[i] * arms @ arms.T + axes @ inertia @ axes.T
    return total


def recursion_mass_matrix(q: Array) -> Array:
    repeated, zero = np.tile(q, (JOINTS, 1)), np.zeros((JOINTS, JOINTS))
    return inverse_dynamics(WEIGHTLESS, repeated, zero, np.eye(JOINTS))


def test_at_rest_the_torques_hold_the_arm_against_gravity() -> None:
    q, _, _ = states(5)
    rest = np.zeros_like(q)
    torque = inverse_dynamics(ARM, q, rest, rest)
    step = 1e-5
    for posture, found in zip(q, torque, strict=True):
        slope = [(potential(posture + step * e) - potential(posture - step * e)) / (2 * step) for e in np.eye(JOINTS)]
        np.testing.assert_allclose(found, slope, atol=1e-7)


def test_no_torque_about_the_vertical_first_axis_at_rest() -> None:
    q, _, _ = states(20)
    torque = inverse_dynamics(ARM, q, np.zeros_like(q), np.zeros_like(q))
    np.testing.assert_allclose(torque[:, 0], 0, atol=1e-12)
    assert np.abs(torque[:, 1:]).max(axis=0).min() > 0.1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mass_matrix_is_symmetric_positive_definite_and_that_of_the_geometry(seed: int) -> None:
    posture = states(1, seed)[0][0]
    matrix = recursion_mass_matrix(posture)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > 1e-4
    np.testing.assert_allclose(matrix, mass_matrix(posture), atol=1e-10)


def test_torques_are_affine_in_the_acceleration() -> None:
    q, qd, qdd = states(4)
    still = inverse_dynamics(ARM, q, qd, np.zeros_like(qdd))
    expected = np.array([mass_matrix(posture) @ a for posture, a in zip(q, qdd, strict=True)])
    np.testing.assert_allclose(inverse_dynamics(ARM, q, qd, qdd) - still, expected, atol=1e-9)


def test_joint_power_is_the_change_of_energy() -> None:
    """Catches wrong Coriolis and centrifugal terms, which no test at rest can see."""
    q, qd, qdd = states(6)
    power = (qd * inverse_dynamics(FRICTIONLESS, q, qd, qdd)).sum(axis=1)
    step = 1e-5

    def energy(posture: Array, speed: Array) -> float:
        return 0.5 * float(speed @ mass_matrix(posture) @ speed) + potential(posture)

    for p, posture, v, a in zip(power, q, qd, qdd, strict=True):
        later = energy(posture + step * v + 0.5 * step**2 * a, v + step * a)
        earlier = energy(posture - step * v + 0.5 * step**2 * a, v - step * a)
        assert p == pytest.approx((later - earlier) / (2 * step), abs=1e-5)


def test_coriolis_torques_are_those_of_the_lagrangian() -> None:
    q, qd, _ = states(3)
    found = inverse_dynamics(WEIGHTLESS, q, qd, np.zeros_like(qd))
    step = 1e-5
    for posture, v, torque in zip(q, qd, found, strict=True):
        slopes = np.array(
            [(mass_matrix(posture + step * e) - mass_matrix(posture - step * e)) / (2 * step) for e in np.eye(JOINTS)]
        )
        along = np.einsum("kij,k,j->i", slopes, v, v)
        np.testing.assert_allclose(torque, along - 0.5 * np.einsum("kij,i,j->k", slopes, v, v), atol=1e-6)


def test_friction_always_takes_energy() -> None:
    _, qd, _ = states(50)
    assert (qd * ARM.friction(qd) > 0).all()
    np.testing.assert_array_equal(ARM.friction(np.zeros((1, JOINTS))), 0)
