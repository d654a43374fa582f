"""Mistakes planted one by one in a copy of the source: the tests of the loop must find each of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = Path(__file__).with_name("test_loop_by_hand.py")
LOOP, LEARNER, DATA, BATCHES, SUMMARY, EVALUATE, OPTIMISATION, RESOLVE, CHOICE = (
    f"training/{name}.py"
    for name in ("loop", "learner", "data", "batches", "summary", "evaluate", "optimisation", "resolve", "choice")
)
METRICS = "benchmarks/metrics.py"

MISTAKES = {
    "evaluated in training mode": (LOOP, "learner.network.eval()", "learner.network.train()"),
    "trained in evaluation mode": (LOOP, "learner.network.train()", "learner.network.eval()"),
    "exclude_true is ignored": (DATA, "config.exclude_true,", "False,"),
    "noise is never redrawn": (DATA, "self._batches(self._noisy(epoch))", "self._batches(self._noisy(0))"),
    "noise is always redrawn": (DATA, "redraw_each_epoch=config.redraw_each_epoch", "redraw_each_epoch=True"),
    "the kind of noise is ignored": (DATA, "kind=config.noise_kind,", ""),
    "weight decay is dropped": (OPTIMISATION, '"weight_decay": config.weight_decay', '"weight_decay": 0.0'),
    "the recipe's learning rate is used": (RESOLVE, '"learning_rate", "weight_decay"', '"weight_decay"'),
    "options of the optimiser are dropped": (OPTIMISATION, "**given, **own)", "**given)"),
    "every optimiser is Adam": (OPTIMISATION, "_CLASSES[config.optimiser](", '_CLASSES["adam"]('),
    "the schedule is ignored": (OPTIMISATION, 'if config.schedule == "constant"', "if True"),
    "the warm-up is ignored": (OPTIMISATION, "if step < config.warmup_steps", "if False"),
    "the schedule begins anew in every epoch": (LOOP, "(epoch * steps + index,", "(index,"),
    "held-out data is noisy": (DATA, "split_off(benchmark.train,", "split_off(self._noisy(0),"),
    "held-out data is trained on": (DATA, "self.clean, self._set_aside = split_off", "_, self._set_aside = split_off"),
    "the same order in every epoch": (
        LOOP,
        "shuffled(self.config.seed, epoch, steps)",
        "shuffled(self.config.seed, 0, steps)",
    ),
    "the same order for every seed": (LOOP, "shuffled(self.config.seed, epoch, steps)", "shuffled(0, epoch, steps)"),
    "batches are not shuffled": (
        BATCHES,
        "torch.randperm(length, generator=generator) for",
        "torch.arange(length) for",
    ),
    "augmentation is never called": (LEARNER, "if self.benchmark.augment is not None:", "if False:"),
    "augmentation repeats every epoch": (LOOP, '("augment", self.config.seed, epoch,', '("augment", self.config.seed,'),
    "gradients add up over steps": (LEARNER, "        self.optimiser.zero_grad()\n", ""),
    "the balancer does not learn of epochs": (LOOP, "balancer.end_epoch()", "pass"),
    "the seed does not reach the weights": (LEARNER, "torch.manual_seed(config.seed)", "torch.manual_seed(0)"),
    "options of the method are dropped": (LEARNER, "shared, self.config.options)", "shared, {})"),
    "inputs are not prepared": (
        LEARNER,
        "inputs, targets = prepared(batch, self.benchmark)",
        "inputs, targets = batch.inputs",
    ),
    "limit_batches is ignored in evaluation": (LOOP, "batches, self.config.limit_batches)", "batches)"),
    "validation scores are those of the test split": (
        DATA,
        "split = self.benchmark.validation",
        "split = self.benchmark.test",
    ),
    "the last, uneven batch is not evaluated": (
        BATCHES,
        "torch.arange(len(target), device",
        "torch.arange(len(target) // self.size * self.size, device",
    ),
    "losses of uneven batches count alike": (EVALUATE, "* len(target)", "* batches.size"),
    "noise is drawn by the run's seed": (DATA, "config.noise_seed,", "config.seed,"),
    "noise goes into the benchmark's own tasks": (DATA, "config.noisy_tasks,", "self.benchmark.noisy_tasks,"),
    "validation labels are always clean": (DATA, "not self.config.noisy_validation or", "True or"),
    "validation labels are always noisy": (DATA, "not self.config.noisy_validation or", "False or"),
    "the epoch of the highest validation loss": (CHOICE, "min(finite, key", "max(finite, key"),
    "nmse is not normalised": (METRICS, "/ examples / variance.to(total.device)", "/ examples"),
    "nmse is normalised by the evaluated target": (
        EVALUATE,
        "train = benchmark.train.targets",
        "train = batches.targets",
    ),
    "clean_score is that of the noisy tasks": (
        SUMMARY,
        '"clean_score": mean_of(scores, clean)',
        '"clean_score": mean_of(scores, noisy)',
    ),
    "overall_score is that of the clean tasks": (SUMMARY, "mean_of(scores, list(scores))", "mean_of(scores, clean)"),
    "clean_weight is that of the noisy tasks": (
        SUMMARY,
        "sum(share[name] for name in clean)",
        "sum(share[name] for name in noisy)",
    ),
    "scores of the first epoch": (SUMMARY, "scores = {name: rows[-1]", "scores = {name: rows[0]"),
    "scores of the validation split": (
        SUMMARY,
        'scores = {name: rows[-1][f"test/',
        'scores = {name: rows[-1][f"validation/',
    ),
    "weights of the first epoch": (LOOP, 'self.history["weights"][-1]', 'self.history["weights"][0]'),
    "weights are logged with their scale": (LOOP, "/= balancer.factor", "/= 1.0"),
}
"""What is wrong -> the file, what stands there, what is planted."""


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(tmp_path, mistake):
    name, right, wrong = MISTAKES[mistake]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "src" / "excessmtl" / name
    source = path.read_text(encoding="utf-8")
    assert source.count(right) == 1, f"{name} has changed: {right!r} stands there {source.count(right)} times"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    # 1: some test failed. Anything else, such as a source that cannot be imported, proves nothing.
    assert done.returncode == 1, f"not found: {mistake}\n{done.stdout[-2000:]}{done.stderr[-500:]}"
    assert " failed" in done.stdout
    assert " error" not in done.stdout.splitlines()[-1]
