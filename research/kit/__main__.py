"""`python -m research.kit`: train every configuration on the choosing problems, and write a row per network."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from excessmtl.files import atomic_write
from research.kit.configs import Config, read_configs
from research.kit.problems import PROBLEMS, Case, Cases, load
from research.kit.training import Training

FILE = "kit.csv.gz"
COLUMNS = (
    *("problem", "config", "lr", "level", "kind", "seed"),
    # Means over the clean tasks, the noisy tasks and all tasks.
    *("clean", "noisy", "overall"),
    # On noisy validation labels, lower is better; the clean tasks' share of the weight.
    *("val", "cw"),
)


def rows(name: str, config: Config, data: Cases, cases: Sequence[Case], epochs: float) -> pd.DataFrame:
    """A row per learning rate and case."""
    problem = PROBLEMS[name]
    outcome = Training(problem, data, config).run(max(1, round(problem.epochs * epochs)))
    scores, weights = outcome.scores.numpy(), outcome.weights.numpy()
    bad = list(problem.noisy)
    good = [task for task in range(scores.shape[1]) if task not in bad]
    networks = [(rate, case) for rate in problem.rates for case in cases]
    frame = pd.DataFrame(
        [(name, config.name, rate, case.level, case.kind, case.seed) for rate, case in networks],
        columns=list(COLUMNS[:6]),
    )
    return frame.assign(
        clean=scores[:, good].mean(1),
        noisy=scores[:, bad].mean(1),
        overall=scores.mean(1),
        val=outcome.validation.numpy(),
        cw=weights[:, good].sum(1),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all configurations on all problems."""
    parser = argparse.ArgumentParser(prog="python -m research.kit", description=__doc__)
    add = parser.add_argument
    add("--configs", type=Path, required=True, help="JSON file of configurations, like research/kit/configs.json")
    add("--data", type=Path, required=True, help="choose.npz, as `python -m research.kit.prepare` makes it")
    add("--out", type=Path, required=True, help=f"folder that {FILE} is written to")
    add("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS), help="default: all")
    add("--seeds", type=int, default=5, help="how many")
    add("--epochs", type=float, default=1.0, help="factor on every problem's number of epochs")
    wanted = parser.parse_args(arguments)
    try:
        configs = read_configs(wanted.configs)
        if wanted.seeds < 1:
            raise ValueError(f"--seeds is {wanted.seeds}: give 1 or more")
        with np.load(wanted.data) as file:
            arrays = {array: file[array] for array in file.files}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    torch.set_num_threads(1)  # so many small products are not faster with more
    tables = []
    for name in wanted.problems:
        start, cases = time.perf_counter(), PROBLEMS[name].cases(wanted.seeds)
        data = load(PROBLEMS[name], arrays, cases)
        tables += [rows(name, config, data, cases, wanted.epochs) for config in configs]
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    with atomic_write(wanted.out / FILE) as file:
        packing = {"method": "gzip", "compresslevel": 9, "mtime": 0}
        pd.concat(tables)[list(COLUMNS)].to_csv(file, index=False, float_format="%.6g", compression=packing)


if __name__ == "__main__":
    main()
