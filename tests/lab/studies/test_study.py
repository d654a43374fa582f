"""Studies in YAML: what they expand to, where their runs lie, and what is said about mistakes."""

from dataclasses import replace
from pathlib import Path

import pytest

from excessmtl.lab.runs.config import RunConfig
from excessmtl.lab.studies.study import expand, folder_of, read_study

ROOT = Path(__file__).parents[3]
SMALL = {"benchmarks": ["simulated-arm"], "methods": ["uniform"]}


def test_every_combination_once_and_by_default_one_run_without_noise():
    plain = {"benchmarks": ["simulated-arm", "multimnist"], "methods": ["excess", "uniform"], "noise": [0, 0.4]}
    runs = expand({**plain, "seeds": 3}, "s").runs
    combinations = {(run.benchmark, run.name, run.noise, run.seed) for run in runs}
    assert len(runs) == len(combinations) == 2 * 2 * 2 * 3
    assert ("multimnist", "uniform", 0.4, 2) in combinations
    assert expand(SMALL, "s").runs == (RunConfig("simulated-arm", "uniform"),)


def test_what_a_benchmark_says_goes_before_the_settings():
    entries = [{"benchmark": "simulated-arm", "epochs": 7, "noisy_tasks": ["joint_3"]}, "multimnist"]
    arm, digits = expand({**SMALL, "benchmarks": entries, "settings": {"epochs": 2, "batch_size": 16}}, "s").runs
    assert (arm.epochs, arm.batch_size, arm.noisy_tasks) == (7, 16, ("joint_3",))
    assert (digits.epochs, digits.batch_size, digits.noisy_tasks) == (2, 16, None)


def test_a_grid_makes_a_method_of_every_combination():
    options = {"estimator": "paper", "step_size": {"grid": [0.01, 0.1]}, "every": {"grid": [1, 2]}}
    runs = expand({**SMALL, "methods": [{"method": "excess", "options": options, "label": "E"}]}, "s").runs
    assert [run.name for run in runs] == [f"E step_size={size} every={k}" for size in (0.01, 0.1) for k in (1, 2)]
    assert runs[-1].options == {"estimator": "paper", "step_size": 0.1, "every": 2}
    unlabelled, *_ = expand({**SMALL, "methods": [{"method": "excess", "options": options}]}, "s").runs
    assert unlabelled.name == "excess estimator=paper every=1 step_size=0.01"


def test_a_file_names_itself_unless_it_says_otherwise_and_numbers_may_have_an_exponent(tmp_path):
    path = tmp_path / "arms.yaml"
    path.write_text("benchmarks: [simulated-arm]\nmethods: [uniform]\nsettings: {learning_rate: 1e-3}\n")
    assert read_study(path).name == "arms"
    assert read_study(path).runs[0].learning_rate == 0.001
    path.write_text("name: other\nbenchmarks: [simulated-arm]\nmethods: [uniform]\n")
    assert read_study(path).name == "other"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 3}, "epochs is not a key of a study"),
        ({"benchmarks": []}, "benchmarks must be a list with at least one entry, found []"),
        ({"benchmarks": ["mnist"]}, "unknown benchmark 'mnist'"),
        ({"benchmarks": [3]}, "an entry of benchmarks must be a mapping (key: value), found 3"),
        ({"benchmarks": [{"benchmark": "sarcos", "noise": [1, 1]}]}, "noise has 1 twice"),
        ({"benchmarks": [{"benchmark": "sarcos", "label": "x"}]}, "label is not a key of an entry of benchmarks"),
        ({"benchmarks": [{"benchmark": "sarcos", "noise_kind": "pair"}] * 2}, "benchmarks has 'sarcos pair' twice"),
        ({"tune": {}}, "tune must name values to try"),
        ({"tune": {"learning_rate": [0.1, 0]}}, "learning_rate must be greater than 0, found 0"),
        ({"tune_seeds": 2}, "tune_seeds is given, but nothing to tune"),
        ({"methods": ["adam"]}, "unknown method 'adam'"),
        ({"methods": ["uniform", {"method": "rlw", "label": "uniform"}]}, "methods has 'uniform' twice"),
        ({"methods": [{"method": "excess", "options": ["paper"]}]}, "options must be a mapping"),
        ({"methods": [{"method": "excess", "options": {"every": {"grid": []}}}]}, "grid must be a list with at least"),
        ({"noise": [2]}, "noise must be at most 1, found 2"),
        ({"seeds": 0}, "seeds must be at least 1, found 0"),
        ({"seeds": [1, 1]}, "seeds has 1 twice"),
        ({"seeds": True}, "seeds must be a list"),
        ({"settings": {"data": "x"}}, "data is not a key of settings"),
        ({"settings": {"epochs": "3"}}, "epochs must be a whole number, found '3'"),
        ({"benchmarks": ["no_such_module:load"]}, "there is no module no_such_module"),
        ({"settings": {"exclude_true": 1}}, "exclude_true must be true or false, found 1"),
        ({"settings": {"noisy_tasks": "joint_1"}}, "noisy_tasks must be a list of names, found 'joint_1'"),
        ({"name": "../../x"}, "name must be a plain name without / or"),
        ({"seeds": 1_000_000_000}, "seeds must be at most 100000, found 1000000000"),
        ({"seeds": 60_000, "noise": [0, 0.5]}, "the study has 120000 runs, more than 100000"),
        (
            {"methods": [{"method": "excess", "options": {k: {"grid": list(range(400))} for k in ("a", "b")}}]},
            "the grids of excess have more than 100000 points",
        ),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_key(change, message):
    with pytest.raises(ValueError) as refused:
        expand({**SMALL, **change}, "s")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods: [a\n", "cannot be read as YAML"),
        ("methods: [uniform]\nnoise: [0]\nmethods: [rlw]\n", "methods stands there twice"),
        ("", "a study must be a mapping"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path, text, message):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ValueError) as refused:
        read_study(path)
    assert str(path) in str(refused.value)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nested_aliases_are_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (tmp_path / "s.yaml").write_text("\n".join(lines))
    with pytest.raises(
        ValueError, match=r"s\.yaml cannot be read as YAML \(\*a0 \(line 2\) is an alias; write the value out"
    ):
        read_study(tmp_path / "s.yaml")


BASE = RunConfig("simulated-arm", "excess", noise=0.4)


def test_a_plain_run_lies_where_one_looks_for_it_on_any_device():
    assert folder_of(replace(BASE, device="cpu")) == Path("simulated-arm/excess/noise-0.4/seed-0")
    assert folder_of(replace(BASE, noise=1, seed=12)) == Path("simulated-arm/excess/noise-1/seed-12")


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"noise": 0.40000001},
        {"options": {"every": "2"}},
        {"label": "excess", "options": {"every": 2}},
        {"label": "excess every 2"},
        {"benchmark_options": {"size": "paper"}},
        {"noisy_tasks": ("joint_1",)},
        {"noise_seed": 1},
        {"exclude_true": True},
        {"benchmark": "b/houses.csv"},
    ],
)
def test_no_two_configurations_share_a_folder(change):
    others = [BASE, replace(BASE, options={"every": 3}), replace(BASE, label="other"), replace(BASE, epochs=4)]
    others += [replace(BASE, benchmark="a/houses.csv")]
    for other in (*others, replace(BASE, **change, limit_batches=5)):
        assert folder_of(replace(BASE, **change)) != folder_of(other)


@pytest.mark.parametrize("label", ["a" * 300, "../../up", "a/b\\c:*?", "...", "ü ± ✗", "CON "])
@pytest.mark.parametrize("benchmark", ["a/houses.csv", "../../houses.csv", "my_package.data:load"])
def test_any_label_and_benchmark_make_a_legal_name(tmp_path, label, benchmark):
    folder = folder_of(replace(BASE, label=label, benchmark=benchmark))
    assert len(folder.parts) == 4
    assert all(len(part) < 100 and part == part.strip(".") and ":" not in part for part in folder.parts)
    (tmp_path / folder).mkdir(parents=True)
    assert (tmp_path / folder).resolve().is_relative_to(tmp_path.resolve())


@pytest.mark.parametrize("path", sorted((ROOT / "studies").rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_studies_of_the_repository_are_well_formed(path):
    study = read_study(path)
    assert study.name == path.stem
    assert len({folder_of(run) for run in study.runs}) == len(study.runs)
    assert path.stem.endswith("-single") or "excess" in {run.method for run in study.runs}


def test_the_demo_takes_minutes_also_where_the_whole_of_mnist_is_in_the_cache():
    assert {run.benchmark_options.get("bundled") for run in read_study(Path("demo")).runs} == {True}
