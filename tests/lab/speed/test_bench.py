"""The bench measures what it says, refuses what it does not know, and writes whole files."""

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

from commands import done, excessmtl, refused
from excessmtl.lab.speed import __main__ as ours
from excessmtl.lab.speed.ablation import ALL, STEPS
from excessmtl.lab.speed.clock import Clock
from excessmtl.lab.speed.measure import measure
from excessmtl.lab.speed.networks import NETWORKS, USUAL, perceptron_of_size
from excessmtl.lab.speed.variants import BASELINE, VARIANTS, Variant, chosen
from excessmtl.lab.speed.variants import USUAL as USUAL_METHODS

CPU = torch.device("cpu")
TINY = perceptron_of_size(2_000, tasks=3, batch=8)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def gradients(variant, steps=1):
    problem = TINY.problem(CPU)
    step = variant.step(problem)
    for _ in range(steps):
        step()
    return {key: parameter.grad for key, parameter in problem.named_parameters()}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_gives_every_parameter_a_gradient(name):
    if not VARIANTS[name].installed:
        pytest.skip(f"{VARIANTS[name].needs} is not installed")
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients(VARIANTS[name]).values())


@pytest.mark.parametrize(("name", "tolerance"), [("uniform", {}), ("official", {"rtol": 0.05, "atol": 1e-3})])
def test_equal_weights_are_the_plain_backward_from_gradients_that_are_none(name, tolerance):
    # The recipe of the published code starts with equal weights.
    torch.testing.assert_close(gradients(VARIANTS[name]), gradients(VARIANTS[BASELINE], steps=2), **tolerance)


@pytest.mark.parametrize("method", STEPS)
def test_a_step_without_a_fast_way_has_the_same_gradients(method):
    steps = {way: Variant(way, step) for way, step in STEPS[method].items()}
    for variant in steps.values():
        torch.testing.assert_close(gradients(variant), gradients(steps[ALL]))


@pytest.mark.parametrize("network", [*(NETWORKS[name] for name in USUAL["cpu"]), TINY], ids=lambda own: own.name)
def test_networks_are_what_they_are_called(network):
    problem = network.problem(CPU)
    assert (len(problem()[1]), len(problem.inputs)) == (network.tasks, network.batch)


def test_growth_networks_have_the_size_asked_for():
    trunk = perceptron_of_size(10**6, 2, 4).problem(CPU).trunk
    assert sum(p.numel() for p in trunk.parameters()) == pytest.approx(10**6, rel=0.6)


def test_every_step_has_its_turn_in_every_round():
    times = Clock(CPU).side_by_side(dict.fromkeys("abc", lambda: sum(range(10**5))), budget=0.01)
    assert len({len(own) for own in times.values()}) == 1
    assert all(len(own) >= 5 for own in times.values())


def test_ratios_are_to_the_first_variant_and_a_cpu_has_no_column_of_memory():
    result = measure(TINY, chosen(["excess"]), CPU, seconds=0.01)
    assert [row.method for row in result.rows] == [BASELINE, "excess"]
    assert result.rows[0].ratio == (1.0, 1.0, 1.0)
    assert all(low <= median <= high for row in result.rows for low, median, high in (row.ms, row.ratio))
    assert list(result.table().columns) == ["method", "ms", "ms, quartiles", "ratio", "ratio, quartiles"]


def test_too_little_memory_is_said_in_a_sentence():
    def prepare(problem):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ValueError, match=r"growth with methods huge .* choose fewer methods"):
        measure(TINY, [Variant("huge", prepare)], CPU, seconds=0.01)


def test_all_methods_on_request_and_the_usual_ones_without():
    assert chosen([]) == [VARIANTS[name] for name in USUAL_METHODS if VARIANTS[name].installed]
    assert VARIANTS["nash"] in chosen(["all"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "excess,nothing"], "nothing"),
        (["--networks", "alexnet"], "alexnet"),
        (["--device", "tpu"], "tpu"),
        (["--seconds", "0"], "seconds"),
        (["--threads", "0"], "threads"),
        (["--growth"], "--json"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, words):
    refused(excessmtl("bench", *arguments), words)


def test_the_table_goes_to_a_file_with_its_origin(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "bench.json"
    arguments = ["bench", "--networks", "conv-5", "--methods", "uniform", "--quick", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["excessmtl", *arguments])
    done(*arguments)
    content = json.loads(path.read_text())
    assert content["command"].startswith("excessmtl bench --networks conv-5")
    assert content["machine"]["torch"] == torch.__version__
    (measured,) = content["results"]
    assert [row["method"] for row in measured["rows"]] == [BASELINE, "uniform"]


def test_a_step_over_its_limit_fails_the_check(monkeypatch):
    for limit, code in ((0.01, 1), (1e4, 0)):
        monkeypatch.setattr(ours, "LIMITS", {"conv-5": {"uniform": limit}})
        assert CliRunner().invoke(ours.app, ["check", "--seconds", "0.01"]).exit_code == code


@pytest.mark.slow
def test_growth_writes_numbers_and_a_plot(tmp_path):
    path = tmp_path / "growth.json"
    done("bench", "--growth", "--quick", "--json", path)
    assert [result["tasks"] for result in json.loads(path.read_text())["growth"]] == [2, 10]
    assert "<svg" in path.with_suffix(".svg").read_text()
