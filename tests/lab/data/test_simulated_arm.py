"""The recursion against a Lagrangian written down from the arm's geometry alone."""

import numpy as np

from excessmtl.lab.data.simulated_arm import JOINTS, Arm, inverse_dynamics, motions, seven_joint_arm

ARM = seven_joint_arm()
FRICTIONLESS = Arm(**{**vars(ARM), "viscous": np.zeros(JOINTS), "dry": np.zeros(JOINTS)})


def states(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-3, 3, (n, JOINTS)), rng.normal(size=(n, JOINTS)), rng.normal(size=(n, JOINTS))


def forward(q):
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


def potential(q):
    return float(ARM.gravity * ARM.mass @ [centre[2] for _, _, centre in forward(q)])


def mass_matrix(q):
    """From the Jacobians of the centres of mass."""
    links = forward(q)
    total = np.zeros((JOINTS, JOINTS))
    for i, (orientation, _, centre) in enumerate(links):
        axes = np.array([r[:, 2] if j <= i else np.zeros(3) for j, (r, _, _) in enumerate(links)])
        arms = np.array([np.cross(axes[j], centre - links[j][1]) for j in range(JOINTS)])
        inertia = orientation @ ARM.inertia[i] @ orientation.T
        total += ARM.mass[i] * arms @ arms.T + axes @ inertia @ axes.T
    return total


def test_friction_always_takes_energy():
    _, qd, _ = states(50)
    assert (qd * ARM.friction(qd) > 0).all()
    np.testing.assert_array_equal(ARM.friction(np.zeros((1, JOINTS))), 0)


def test_torques_are_those_of_the_lagrangian():
    q, qd, qdd = states(5)
    step = 1e-5

    def slopes(function, posture):
        return np.array([(function(posture + e) - function(posture - e)) / (2 * step) for e in step * np.eye(JOINTS)])

    for posture, v, a, torque in zip(q, qd, qdd, inverse_dynamics(FRICTIONLESS, q, qd, qdd), strict=True):
        change = slopes(mass_matrix, posture)
        coriolis = np.einsum("kij,k,j->i", change, v, v) - 0.5 * np.einsum("kij,i,j->k", change, v, v)
        np.testing.assert_allclose(torque, mass_matrix(posture) @ a + coriolis + slopes(potential, posture), atol=1e-6)


def test_velocities_and_accelerations_belong_to_the_positions():
    q, qd, qdd = motions(50, np.random.default_rng(0))
    step = 5.0 / 49
    # Rows are a tenth of a second apart, hence the loose bound of the central difference.
    np.testing.assert_allclose((q[2:] - q[:-2]) / (2 * step), qd[1:-1], atol=0.1)
    np.testing.assert_allclose((qd[2:] - qd[:-2]) / (2 * step), qdd[1:-1], atol=0.5)
