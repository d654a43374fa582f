"""Drawings from tables of runs: files, columns, titles that say which data it is."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import excessmtl
from excessmtl.lab.compare.collect import read_table, write_table
from excessmtl.lab.data.find import load_benchmark
from excessmtl.lab.data.noise import Noise, apply
from excessmtl.lab.paper import registry, split_estimate
from excessmtl.lab.paper.figures import conceptual
from excessmtl.lab.paper.registry import heading
from excessmtl.lab.paper.reproduction import draw_from
from excessmtl.lab.paper.subjects import COMPARED, MOML, PAPER, ROBUST, SINGLE_TASK, Runs, shown_name
from excessmtl.lab.training.batches import Batches, prepared
from excessmtl.lab.training.model import MultiTaskModel
from made_up_runs import PACS, as_frame, made_up_run, with_tasks_called, write_course
from worlds import RIGHT, multimnist, nyuv2, office_home, sarcos, world


def drawn(name, frame, out, root=None):
    drawings = registry.registry()[name].drawings(Runs.of(frame, root))
    return {path.name for stem, drawing in drawings for path in drawing.save(out, stem)}


@pytest.fixture(autouse=True)
def _text_in_svg():
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # titles as text, not as outlines
        yield


@pytest.mark.parametrize(
    ("name", "rows"), [("multimnist", multimnist), ("office-home", office_home), ("sarcos", sarcos)]
)
def test_trends_over_noise(tmp_path, name, rows):
    assert drawn(name, as_frame(rows(RIGHT)), tmp_path) == {f"{name}.csv", f"{name}.png", f"{name}.svg"}
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert set(table.method) == set(COMPARED)
    for column in ("overall_score", "clean_score", "noisy_score", "clean_weight"):
        assert {column, f"{column}_sd", f"{column}_low", f"{column}_high"} <= set(table.columns)
    flat = table[(table.method == PAPER)].set_index("noise")
    falling = table[(table.method == "MGDA")].set_index("noise")
    assert flat.clean_score[0.8] == pytest.approx(flat.clean_score[0.0])
    assert falling.clean_weight[0.8] < falling.clean_weight[0.0]
    assert (table.seeds == 3).all()
    assert (table.clean_score_low < table.clean_score).all()
    assert ("lower is better" in (tmp_path / f"{name}.svg").read_text()) == (name == "sarcos")


@pytest.mark.parametrize(
    ("name", "rows", "stand_in", "real"),
    [
        ("office-home", office_home, "digit-domains", "Office-Home"),
        ("clean-validation", office_home, "digit-domains", "Office-Home"),
        ("sarcos", sarcos, "simulated-arm", "SARCOS"),
        ("nyuv2", nyuv2, "synthetic-rooms", "NYUv2"),
    ],
)
def test_a_stand_in_is_titled_so(tmp_path, name, rows, stand_in, real):
    own = {f"{name}.{kind}" for kind in ("csv", "png", "svg")}
    files = drawn(name, as_frame(rows(RIGHT) + rows(RIGHT, stand_in)), tmp_path)
    assert files - own == {f"{name}_{stand_in}.{kind}" for kind in ("csv", "png", "svg")}
    assert own < files, "the data itself is drawn beside it"
    text = (tmp_path / f"{name}_{stand_in}.svg").read_text()
    assert f"(stand-in for {real})" in text
    assert text.count(real) == 1
    titles = set(pd.read_csv(tmp_path / f"{name}_{stand_in}.csv").data)
    assert all(title.endswith(f"(stand-in for {real})") for title in titles)


def test_other_pictures_are_not_called_office_home(tmp_path):
    frame = with_tasks_called(as_frame(office_home(RIGHT)), PACS)
    frame["source"] = "pacs64.tar.xz: 9,991 pictures, 4 domains, 7 classes, 64 px"
    assert "office-home_pacs64.png" in drawn("office-home", frame, tmp_path)
    assert "stand-in for Office-Home" in (tmp_path / "office-home_pacs64.svg").read_text()


def test_two_sources_of_the_same_kind_do_not_overwrite_each_other(tmp_path):
    few = [row | {"source": "bundled digits, 4,000 + 1,000, 4,000 pairs, canvas 36"} for row in multimnist(RIGHT)[:40]]
    assert {"multimnist.png", "multimnist_2.png"} <= drawn("multimnist", as_frame(few + multimnist(RIGHT)), tmp_path)
    assert "MNIST, 60,000" in (tmp_path / "multimnist.svg").read_text()
    assert "bundled digits" in (tmp_path / "multimnist_2.svg").read_text()


def test_runs_of_different_length_are_not_mixed():
    rows = multimnist(RIGHT)
    subjects = Runs.of(as_frame(rows + [row | {"epochs": 2} for row in rows])).subjects("multimnist")
    assert [subject.setting.epochs for subject in subjects] == [15, 2], "the length of the paper first"


@pytest.mark.parametrize(
    ("name", "rows", "methods", "columns"),
    [
        ("clean-validation", office_home, {MOML, "MGDA", PAPER, ROBUST}, set()),
        ("nyuv2", nyuv2, {PAPER}, {f"normals/within_{at}" for at in ("11.25", "22.5", "30")} | {"depth/rel_error"}),
    ],
)
def test_tables_have_what_the_picture_has_no_room_for(tmp_path, name, rows, methods, columns):
    drawn(name, as_frame(rows(RIGHT)), tmp_path)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert methods <= set(table.method)
    assert columns <= set(table.columns)


def test_the_loss_profile_has_the_single_task_losses(tmp_path):
    drawn("loss-profile", as_frame(multimnist(RIGHT)), tmp_path)
    table = pd.read_csv(tmp_path / "loss-profile.csv").set_index(["method", "noise"])
    assert table.clean_loss[SINGLE_TASK, 0.8] == pytest.approx(0.1)
    assert table.noisy_loss[SINGLE_TASK, 0.8] == pytest.approx(0.9)
    assert table.clean_loss["MGDA", 0.8] == pytest.approx(0.5)


def courses(root, noise, names):
    """Estimates that are a third of the truth for the clean task, and half of it for the noisy one."""
    rows = []
    for shown in names:
        row = made_up_run("multimnist", shown, noise, 0, clean=0.9, noisy=0.5, weight=0.5, epochs=10)
        write_course(
            root / row["folder"],
            ["top_left", "bottom_right"],
            ["bottom_right"],
            weights=lambda t, noisy: t if noisy else 1 - t,
            losses=lambda t, noisy: noisy + (1 - t) ** 6,
            risks=lambda t, noisy: (1 - t) ** 6 / (2 if noisy else 3),
        )
        rows.append(row)
    return as_frame(rows)


def test_excess_risks_are_compared_task_by_task(tmp_path):
    files = drawn("excess-risk", courses(tmp_path, 0.6, (PAPER, ROBUST)), tmp_path / "out", tmp_path)
    assert files == {"excess-risk.csv", "excess-risk_course.csv", "excess-risk.png", "excess-risk.svg"}
    table = pd.read_csv(tmp_path / "out" / "excess-risk.csv").set_index(["method", "task"])
    assert (table.correlation > 0.999).all()
    assert table.slope[PAPER, "top_left"] == pytest.approx(3, rel=1e-3)
    assert table.slope[PAPER, "bottom_right"] == pytest.approx(2, rel=1e-3)
    course = pd.read_csv(tmp_path / "out" / "excess-risk_course.csv")
    noisy = course[(course.method == PAPER) & course.noisy]
    assert noisy.true.to_numpy() == pytest.approx(noisy.loss.to_numpy() - 1, abs=1e-5), "the loss ends at 1"


def test_the_dynamics_of_weights_and_accuracy(tmp_path):
    files = drawn("dynamics", courses(tmp_path, 0.8, (PAPER, "Uniform")), tmp_path / "out", tmp_path)
    assert {"dynamics_weights.csv", "dynamics_accuracy.csv", "dynamics.png"} <= files
    weights = pd.read_csv(tmp_path / "out" / "dynamics_weights.csv")
    own = weights[weights.method == PAPER].sort_values("epoch")
    assert own.clean_weight.iloc[0] > 0.95
    assert own.clean_weight.iloc[-1] < 0.05
    assert own.epoch.max() < 10
    accuracy = pd.read_csv(tmp_path / "out" / "dynamics_accuracy.csv")
    assert accuracy.clean_score.max() == pytest.approx(0.9)
    assert {"clean_score", "noisy_score", "epoch", "seed", "method"} <= set(accuracy.columns)


def test_figure_1_has_its_published_front():
    front = pd.read_csv(Path(__file__).parents[3] / "docs" / "data" / "theory" / "conceptual_front.csv")
    problem = conceptual.two_tasks()
    points = [problem.risks(problem.minimum(weight)) for weight in front.weight_1]
    assert np.array(points) == pytest.approx(front[["loss_1", "loss_2"]].to_numpy(), rel=1e-3)
    assert excessmtl.pareto_front(points).all()


def test_the_figure_of_batch_sizes_is_algorithm_1_and_its_signal_the_whole_of_it_without_sampling(monkeypatch):
    course = split_estimate.course(5, 64, seed=0, bundled=True)
    benchmark = load_benchmark("multimnist", None, 0, {"bundled": True})
    noise = Noise(split_estimate.NOISE, benchmark.noisy_tasks, 0)
    batches = Batches(apply(benchmark.train, benchmark.tasks, noise), 64, torch.device("cpu"))
    torch.manual_seed(0)
    network = MultiTaskModel(benchmark)
    names = [task.name for task in benchmark.tasks]
    balancer = excessmtl.create("excess", names, shared=network.shared, estimator="paper")
    optimiser = torch.optim.Adam(network.parameters(), benchmark.recipe.learning_rate)
    for _, batch in zip(range(5), batches.shuffled(0, epoch=0), strict=False):
        optimiser.zero_grad()
        outputs = network(prepared(batch, benchmark))
        step = balancer.backward({t.name: t.kind.loss(outputs[t.name], batch.targets[t.name]) for t in benchmark.tasks})
        optimiser.step()
    clean, noisy = step.weights.tolist()
    assert course["log_ratio"].iloc[-1] == pytest.approx(np.log(noisy / clean), rel=1e-3)
    assert course["signal"].iloc[-1] != pytest.approx(course["log_ratio"].iloc[-1], rel=0.1)
    # Where mu is the gradient of the mini-batch itself, nothing but signal is left.
    same = split_estimate._batches
    monkeypatch.setattr(split_estimate, "_batches", lambda split, size, seed: same(benchmark.train, 64, seed))
    alone = split_estimate.course(5, 64, seed=0, bundled=True)
    assert alone["signal"].iloc[-1] == pytest.approx(alone["log_ratio"].iloc[-1], rel=1e-3)


def test_a_table_alone_is_enough_where_no_course_is_shown(tmp_path):
    write_table(world(RIGHT), tmp_path / "study" / "runs.csv")
    made = {entry.name: paths for entry, paths in draw_from(list(registry.registry().values()), tmp_path, tmp_path)}
    assert {name for name, paths in made.items() if not paths} == {"dynamics", "excess-risk"}
    assert set(registry.registry()) - set(made) == {"batch-size", "conceptual"}
    assert read_table(tmp_path / "study" / "runs.csv").weights.isna().any()  # single-task runs have none


@pytest.mark.parametrize(
    ("method", "options", "mixed", "shown"),
    [
        ("excess", {}, False, ROBUST),
        ("excess", {"estimator": "robust"}, True, ROBUST),
        ("excess", {"estimator": "paper"}, False, PAPER),
        ("excess", {"estimator": "paper", "normalize": "none"}, False, PAPER),
        ("excess", {"estimator": "paper", "normalize": "initial", "warmup_steps": 9}, True, PAPER),
        ("excess", {"estimator": "paper", "normalize": "initial"}, True, "ExcessMTL (paper, normalised)"),
        ("excess", {"estimator": "paper", "normalize": "initial", "warmup_steps": 9}, False, "mine"),
        ("excess", {"estimator": "paper", "step_size": 1.0}, False, "mine"),
        ("uw", {}, False, "mine"),
    ],
)
def test_methods_are_known_by_their_options_not_by_their_labels(method, options, mixed, shown):
    assert shown_name(method, options, "mine", mixed) == shown


def test_a_heading_wider_than_its_picture_takes_two_lines():
    picture = registry.canvas(8, 3)
    heading(picture, "short; 5 epochs")
    assert picture.get_suptitle() == "short; 5 epochs"
    heading(picture, f"{'long' * 30}; 5 epochs; bands")
    assert picture.get_suptitle() == f"{'long' * 30}\n5 epochs; bands"
