"""The bench command measures what it says, refuses what it does not know, and writes whole files."""

import json
from dataclasses import asdict

import pytest
import torch
from typer.testing import CliRunner

from excessmtl.lab.cli.app import app
from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.measure import measure
from excessmtl.lab.speed.networks import NETWORKS, perceptron_of_size
from excessmtl.lab.speed.tables import to_replayed
from excessmtl.lab.speed.variants import BASELINE, REPLAYED_BASELINE, USUAL, VARIANTS, Variant, chosen

CPU = torch.device("cpu")
TINY = perceptron_of_size(2_000, tasks=3, batch=8)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def gradients(name):
    problem = TINY.problem(CPU)
    VARIANTS[name].step(problem)()
    return {key: parameter.grad for key, parameter in problem.named_parameters()}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_gives_every_parameter_a_gradient(name):
    if not VARIANTS[name].at_hand:
        pytest.skip(f"{VARIANTS[name].needs} is not installed")
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients(name).values())


def test_our_uniform_weighting_is_the_plain_backward():
    plain, ours = gradients(BASELINE), gradients("uniform")
    for key in plain:
        torch.testing.assert_close(ours[key], plain[key])


def test_the_official_recipe_starts_with_equal_weights():
    torch.testing.assert_close(gradients("official"), gradients(BASELINE), rtol=0.05, atol=1e-3)


def test_a_step_starts_without_gradients():
    problem = TINY.problem(CPU)
    step = VARIANTS[BASELINE].step(problem)
    step()
    once = problem.heads["task0"].weight.grad.clone()
    step()
    assert torch.equal(problem.heads["task0"].weight.grad, once)


@pytest.mark.parametrize("name", ["mlp-7", "lenet-2", "mlp512-40", "conv-5"])
def test_networks_are_what_they_are_called(name):
    network = NETWORKS[name]
    problem = network.problem(CPU)
    _, losses = problem()
    assert len(losses) == network.tasks
    assert len(problem.inputs) == network.batch


@pytest.mark.parametrize("parameters", [10**4, 10**6])
def test_growth_networks_have_the_size_asked_for(parameters):
    trunk = perceptron_of_size(parameters, 2, 4).problem(CPU).trunk
    assert sum(p.numel() for p in trunk.parameters()) == pytest.approx(parameters, rel=0.6)


def test_every_step_has_its_turn_in_every_round():
    calls = []
    steps = {name: lambda name=name: calls.append(name) or sum(range(10**5)) for name in "abc"}
    found = Clock(CPU).side_by_side(steps, budget=0.01)
    assert len({len(times) for times in found.values()}) == 1
    assert all(len(times) >= 5 for times in found.values())


def test_a_result_compares_with_the_baseline():
    result = measure(TINY, chosen(["excess"]), CPU, seconds=0.01)
    assert [row.method for row in result.rows] == [BASELINE, "excess"]
    assert result.rows[0].ratio == (1.0, 1.0, 1.0)
    assert all(low <= median <= high for row in result.rows for low, median, high in (row.ms, row.ratio))


def test_too_little_memory_is_said_in_a_sentence():
    def prepare(problem):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ValueError, match=r"growth with methods huge .* choose fewer methods"):
        measure(TINY, [Variant("huge", "", prepare)], CPU, seconds=0.01)


def test_all_methods_on_request_and_the_usual_ones_without():
    usual = [VARIANTS[name] for name in USUAL if VARIANTS[name].at_hand]
    assert chosen([], "cuda") == usual
    assert chosen([]) == [variant for variant in usual if not variant.replayed]
    assert "nash" in [variant.name for variant in chosen(["all"])]


def test_what_recordings_cost_over_a_plain_recording_has_a_column_of_its_own():
    variants = [VARIANTS[name] for name in (BASELINE, "excess", REPLAYED_BASELINE, "excess-replayed")]
    rows = measure(TINY, variants, CPU, seconds=0.01).rows  # steps as they are, on a CPU
    assert [row.to_replayed is not None for row in rows] == [False, False, True, True]
    assert rows[2].to_replayed == (1.0, 1.0, 1.0)
    assert [len(cell) for cell in to_replayed({"rows": [asdict(row) for row in rows]})] == [1] * 4
    assert to_replayed({"rows": [asdict(row) for row in rows[:2]]}) == [[], []]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "excess,nothing"], "nothing"),
        (["--methods", "excess-replayed"], "--device cuda"),
        (["--networks", "alexnet"], "alexnet"),
        (["--device", "tpu"], "tpu"),
        (["--seconds", "0"], "seconds"),
        (["--threads", "0"], "threads"),
        (["--growth"], "--json"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, words):
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_table_goes_to_a_file_with_its_origin(tmp_path):
    path = tmp_path / "deep" / "bench.json"
    arguments = ["bench", "--networks", "conv-5", "--methods", "uniform", "--quick", "--json", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    content = json.loads(path.read_text())
    assert content["machine"]["torch"] == torch.__version__
    (found,) = content["results"]
    assert [row["method"] for row in found["rows"]] == [BASELINE, "uniform"]
    assert found["rows"][1]["peak_mb"] is None


@pytest.mark.slow
def test_growth_writes_numbers_and_a_plot(tmp_path):
    path = tmp_path / "growth.json"
    result = CliRunner().invoke(app, ["bench", "--growth", "--quick", "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert [curve["axis"] for curve in json.loads(path.read_text())["growth"]] == [
        "tasks",
        "shared parameters",
        "batch",
    ]
    assert "<svg" in path.with_suffix(".svg").read_text()
