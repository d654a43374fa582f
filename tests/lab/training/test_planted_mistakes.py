"""Mistakes planted one by one in the source: for each, the one test that is named must find it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BY_HAND = "tests/lab/training/test_loop_by_hand.py"
RUNS = f"{BY_HAND}::test_a_run_is_what_a_plain_loop_computes"
RUN, AUGMENTED, MOML, DWA = (
    f"{RUNS}[{method}-config{number}-arguments{number}-world{number}]"
    for method, number in (("excess", 0), ("excess", 1), ("moml", 2), ("dwa", 8))
)
VALIDATION = f"{BY_HAND}::test_noisy_validation_labels_choose_an_epoch"
HUMAN, ROBUST, COMPARED = (
    f"tests/lab/{name}.py"
    for name in (
        "data/test_human_noise",
        "compare/test_robust_measures",
        "compare/test_verdict",
    )
)


def _field(name):
    return f"{BY_HAND}::test_a_field_does_what_the_plain_loop_does_with_it[{name}]"


LOOP, LEARNER, DATA, BATCHES, EVALUATE, OPTIMISATION, RESOLVE = (
    f"lab/training/{name}.py" for name in ("loop", "learner", "data", "batches", "evaluate", "optimisation", "resolve")
)
SUMMARY, METRICS, LIDC = "lab/runs/summary.py", "lab/data/metrics.py", "lab/data/lidc.py"
ROBUSTNESS, RANKS, COMPARISON = "lab/compare/robustness.py", "lab/compare/ranks.py", "lab/compare/comparison.py"

MISTAKES = {
    "evaluated in training mode": (LOOP, "learner.network.eval()", "learner.network.train()", RUN),
    "trained in evaluation mode": (LOOP, "learner.network.train()", "learner.network.eval()", RUN),
    "exclude_true is ignored": (DATA, "config.exclude_true,", "False,", _field("exclude_true")),
    "noise is never redrawn": (
        DATA,
        "self._batches(self._noisy(epoch))",
        "self._batches(self._noisy(0))",
        _field("redraw_each_epoch"),
    ),
    "noise is always redrawn": (DATA, "redraw_each_epoch=config.redraw_each_epoch", "redraw_each_epoch=True", RUN),
    "the kind of noise is ignored": (DATA, "kind=config.noise_kind,", "", _field("noise_kind")),
    "weight decay is dropped": (
        OPTIMISATION,
        '"weight_decay": config.weight_decay',
        '"weight_decay": 0.0',
        _field("weight_decay"),
    ),
    "the recipe's learning rate is used": (
        RESOLVE,
        '"learning_rate", "weight_decay"',
        '"weight_decay"',
        RUN,
    ),
    "options of the optimiser are dropped": (OPTIMISATION, "**given, **own)", "**given)", _field("optimiser_options")),
    "every optimiser is Adam": (OPTIMISATION, "_CLASSES[config.optimiser](", '_CLASSES["adam"](', _field("optimiser")),
    "the schedule is ignored": (OPTIMISATION, 'if config.schedule == "constant"', "if True", _field("schedule")),
    "the warm-up is ignored": (OPTIMISATION, "if step < config.warmup_steps", "if False", _field("warmup_steps")),
    "the schedule begins anew in every epoch": (LOOP, "(epoch * steps + index,", "(index,", _field("schedule")),
    "held-out data is noisy": (DATA, "split_off(benchmark.train,", "split_off(self._noisy(0),", MOML),
    "held-out data is trained on": (
        DATA,
        "self.clean, self._set_aside = split_off",
        "_, self._set_aside = split_off",
        MOML,
    ),
    "the same order in every epoch": (
        LOOP,
        "shuffled(self.config.seed, epoch, steps)",
        "shuffled(self.config.seed, 0, steps)",
        RUN,
    ),
    "the same order for every seed": (
        LOOP,
        "shuffled(self.config.seed, epoch, steps)",
        "shuffled(0, epoch, steps)",
        RUN,
    ),
    "batches are not shuffled": (
        BATCHES,
        "torch.randperm(length, generator=generator) for",
        "torch.arange(length) for",
        RUN,
    ),
    "augmentation is never called": (LEARNER, "if self.benchmark.augment is not None:", "if False:", AUGMENTED),
    "augmentation repeats every epoch": (
        LOOP,
        '("augment", self.config.seed, epoch,',
        '("augment", self.config.seed,',
        AUGMENTED,
    ),
    "gradients add up over steps": (LEARNER, "        self.optimiser.zero_grad()\n", "", RUN),
    "the balancer does not learn of epochs": (LOOP, "balancer.end_epoch()", "pass", DWA),
    "the seed does not reach the weights": (LEARNER, "torch.manual_seed(config.seed)", "torch.manual_seed(0)", RUN),
    "options of the method are dropped": (LEARNER, "shared, self.config.options)", "shared, {})", _field("options")),
    "inputs are not prepared": (
        LEARNER,
        "inputs, targets = prepared(batch, self.benchmark)",
        "inputs, targets = batch.inputs",
        RUN,
    ),
    "limit_batches is ignored in evaluation": (
        LOOP,
        "batches, self.config.limit_batches)",
        "batches)",
        _field("limit_batches"),
    ),
    "validation scores are those of the test split": (
        DATA,
        "split = self.benchmark.validation",
        "split = self.benchmark.test",
        RUN,
    ),
    "the last, uneven batch is not evaluated": (
        BATCHES,
        "torch.arange(len(target), device",
        "torch.arange(len(target) // self.size * self.size, device",
        RUN,
    ),
    "losses of uneven batches count alike": (EVALUATE, "* len(target)", "* batches.size", RUN),
    "noise is drawn by the run's seed": (DATA, "config.noise_seed,", "config.seed,", _field("noise_seed")),
    "noise goes into the benchmark's own tasks": (
        DATA,
        "config.noisy_tasks,",
        "self.benchmark.noisy_tasks,",
        _field("noisy_tasks"),
    ),
    "validation labels are always clean": (DATA, "not self.config.noisy_validation or", "True or", VALIDATION),
    "validation labels are always noisy": (DATA, "not self.config.noisy_validation or", "False or", RUN),
    "the epoch of the highest validation loss": (SUMMARY, "min(known, key", "max(known, key", VALIDATION),
    "nmse is not normalised": (METRICS, "/ examples / variance.to(total.device)", "/ examples", MOML),
    "nmse is normalised by the evaluated target": (
        EVALUATE,
        "train = benchmark.train.targets",
        "train = batches.targets",
        MOML,
    ),
    "clean_score is that of the noisy tasks": (
        SUMMARY,
        '"clean": [task for task in tasks if task not in noisy]',
        '"clean": noisy',
        RUN,
    ),
    "overall_score is that of the clean tasks": (
        SUMMARY,
        '"overall": list(tasks)',
        '"overall": [task for task in tasks if task not in noisy]',
        RUN,
    ),
    "clean_weight is that of the noisy tasks": (
        SUMMARY,
        "sum(share[task] for task in tasks if task not in noisy)",
        "sum(share[task] for task in noisy)",
        RUN,
    ),
    "scores of the first epoch": (SUMMARY, '"scores": recent[-1]', '"scores": recent[0]', RUN),
    "scores of the validation split": (
        SUMMARY,
        'part: str = "test"',
        'part: str = "validation"',
        RUN,
    ),
    "weights of the first epoch": (LOOP, 'self.history["weights"][-1]', 'self.history["weights"][0]', RUN),
    "weights are logged with their scale": (LOOP, "/= balancer.factor", "/= 1.0", RUN),
    "LIDC is tested on the reader trained on": (
        LIDC,
        "for number, own in enumerate(nodule) if number != reader]",
        "for own in nodule]",
        f"{HUMAN}::test_no_nodule_is_tested_on_the_reader_whose_outline_it_is",
    ),
    "LIDC is standardised over all splits": (
        LIDC,
        "list(standardise(*inputs))",
        "list(standardise(torch.cat(inputs), *inputs)[1:])",
        f"{HUMAN}::test_nodules_are_standardised_by_the_training_split_alone",
    ),
    "diverged seeds are dropped from mean ranks": (
        ROBUSTNESS,
        "values.mean(skipna=False)",
        "values.mean()",
        f"{ROBUST}::test_one_seed_that_diverged_makes_a_method_last_there",
    ),
    "the noise curve is taken as evenly spaced": (
        ROBUSTNESS,
        "float(trapezoid(own[label], levels)) / width",
        "float(trapezoid(own[label])) / (len(levels) - 1)",
        f"{ROBUST}::test_the_area_under_the_noise_curve_counts_how_far_levels_are_apart",
    ),
    "ranks on the same data count as independent": (
        RANKS,
        "if blocks is not None:",
        "if False:",
        f"{ROBUST}::test_settings_on_the_same_data_count_once_in_mean_ranks",
    ),
    "spread acquits": (
        COMPARISON,
        "if -self.tolerance <= self.lower and self.upper <= self.tolerance:",
        "if -self.tolerance <= self.upper:",
        f"{COMPARED}::test_the_whole_interval_decides_from_three_seeds_on",
    ),
    "two seeds decide": (
        COMPARISON,
        "if len(values) < SEEDS:",
        "if len(values) < 2:",
        f"{COMPARED}::test_the_whole_interval_decides_from_three_seeds_on",
    ),
}
"""What is wrong -> the file, what stands there, what is planted, and the test that must fail then."""


def test_mistakes_are_planted_where_the_source_still_says_so():
    for name, right, *_ in MISTAKES.values():
        count = (ROOT / "src" / "excessmtl" / name).read_text(encoding="utf-8").count(right)
        assert count == 1, f"{name} has changed: {right!r} stands there {count} times"


@pytest.mark.timeout(900)  # a minute of one core; other tests may share it
@pytest.mark.skipif(not hasattr(os, "fork"), reason="planted.py forks")
def test_every_planted_mistake_is_found():
    """One process imports torch; a fork of it for each mistake runs one test, and one without a mistake runs all."""
    listed = [
        {"name": name, "file": file, "right": right, "wrong": wrong, "tests": [test]}
        for name, (file, right, wrong, test) in MISTAKES.items()
    ]
    tests = sorted({test for *_, test in MISTAKES.values()})
    listed.append({"name": "nothing", "file": LOOP, "right": "", "wrong": "", "tests": tests})
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("planted.py"))]
    done = subprocess.run(
        command, input=json.dumps(listed), env=environment, capture_output=True, text=True, timeout=840
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert set(found) == {*MISTAKES, "nothing"}
    status, words = found.pop("nothing")
    assert status == 0, f"the tests fail without a mistake: {words}"
    # 1: the test failed. Anything else, such as a source that cannot be imported, proves nothing.
    missed = {name: words for name, (status, words) in found.items() if status != 1 or not _failed(words)}
    assert missed == {}


def _failed(words):
    last = words.strip().splitlines()[-1]
    return " failed" in last and " error" not in last
