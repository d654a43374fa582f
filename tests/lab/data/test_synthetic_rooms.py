from dataclasses import replace

import numpy as np
import pytest
import torch

from excessmtl.lab.data.dense import TASKS
from excessmtl.lab.data.room_render import pixel_rays, render
from excessmtl.lab.data.room_scene import CLASSES, random_scene
from excessmtl.lab.data.synthetic_rooms import SIZES, load
from tiny_data import splits

HEIGHT, WIDTH = 60, 80


def room(seed):
    rng = np.random.default_rng(seed)
    scene = random_scene(rng)
    return scene, render(scene, HEIGHT, WIDTH, rng)


def inside(box, points):
    """Coordinates on the box, from -1 to 1 within it."""
    c, s = np.cos(box.yaw), np.sin(box.yaw)
    turned: np.ndarray = (points - box.centre) @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return turned / box.half


@pytest.fixture(scope="module")
def rooms():
    return load(3)


@pytest.mark.parametrize("seed", range(4))
def test_every_pixel_is_the_first_face_on_its_ray_with_its_class_and_normal(seed):
    scene, view = room(seed)
    seen = pixel_rays(HEIGHT, WIDTH).astype(np.float64).reshape(HEIGHT, WIDTH, 3) * view.depth[0, :, :, None]
    way = (seen @ scene.rotation.T).reshape(-1, 3)  # from the camera's axes to those of the room
    normals = view.normals.reshape(3, -1).T @ scene.rotation.T
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1, atol=1e-5)
    assert ((normals * way).sum(axis=1) < 0).all(), "normals face the camera"
    points = scene.camera + way
    found = np.zeros(len(points), dtype=bool)
    for box in (*scene.boxes, scene.walls, scene.floor, scene.ceiling):
        away = np.abs(np.abs(inside(box, points)) - 1) * box.half
        within = (np.abs(inside(box, points)) * box.half < box.half + 1e-4).all(axis=1)
        c, s = np.cos(box.yaw), np.sin(box.yaw)
        axes = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        along = np.abs(normals @ axes.T) > 1 - 1e-5
        found |= within & ((away < 1e-4) & along).any(axis=1) & (view.label.ravel() == CLASSES.index(box.label))
    assert found.all()
    for share in (0.05, 0.3, 0.6, 0.9, 0.999):
        before = scene.camera + share * way
        assert ((before > 0) & (before < scene.size)).all()
        for box in scene.boxes:
            assert not (np.abs(inside(box, before)) < 1 - 1e-3).all(axis=1).any()


def test_an_empty_room_seen_straight_on_has_the_depth_of_its_far_wall():
    scene = random_scene(np.random.default_rng(0))
    straight = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
    bare = replace(scene, boxes=(), rotation=straight, camera=np.array([scene.size[0] / 2, 0.5, 1.3]))
    view = render(bare, HEIGHT, WIDTH, np.random.default_rng(0))
    assert view.depth[0, HEIGHT // 2, WIDTH // 2] == pytest.approx(scene.size[1] - 0.5, abs=1e-4)
    np.testing.assert_allclose(view.normals[:, HEIGHT // 2, WIDTH // 2], [0, 0, -1], atol=1e-6)
    assert view.label[HEIGHT // 2, WIDTH // 2] == CLASSES.index("wall")
    assert view.label[-1, WIDTH // 2] == CLASSES.index("floor")
    np.testing.assert_allclose(view.normals[:, -1, WIDTH // 2], [0, -1, 0], atol=1e-6)


def test_it_has_the_shapes_of_nyuv2(rooms):
    assert rooms.tasks == TASKS
    assert rooms.noisy_tasks == ("segmentation",)
    assert rooms.augment is None
    for split, n in zip(splits(rooms), (200, 40, 60), strict=True):
        assert isinstance(split.inputs, torch.Tensor)
        assert split.inputs.dtype == torch.uint8
        assert split.inputs.shape == (n, 3, 48, 64)
        shapes = [tuple(target.shape) for target in split.targets.values()]
        assert shapes == [(n, 48, 64), (n, 1, 48, 64), (n, 3, 48, 64)]
    assert (SIZES["paper"].scenes[0], SIZES["paper"].scenes[2]) == (795, 654)


def test_all_classes_are_there_and_the_border_is_unknown_in_every_target(rooms):
    labels = rooms.train.targets["segmentation"]
    counts = (labels[labels >= 0].long()).bincount(minlength=13)
    assert len(counts) == 13
    assert counts.min() > 0.003 * counts.sum()
    unknown = labels == -1
    assert unknown[:, 0].all()
    assert not unknown[:, 1:-1, 1:-1].any()
    assert torch.equal(rooms.train.targets["depth"][:, 0] == 0, unknown)
    assert torch.equal(rooms.train.targets["normals"].norm(dim=1) == 0, unknown)


def test_pictures_are_neither_dark_nor_flat(rooms):
    images = torch.as_tensor(rooms.train.inputs).float()
    assert 60 < images.mean() < 200
    assert (images.std(dim=(1, 2, 3)) > 15).all()
    prepared = rooms.prepare(torch.as_tensor(rooms.train.inputs))
    torch.testing.assert_close(prepared.mean((0, 2, 3)), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(prepared.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)
