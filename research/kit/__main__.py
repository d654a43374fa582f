"""`python -m research.kit`: train every configuration on the choosing problems, and write a row per network."""

import argparse
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from excessmtl.files import atomic_write
from research.kit.cases import load
from research.kit.configs import Runs, read_configs
from research.kit.problems import KINDS, PROBLEMS, Arrays, Case
from research.kit.training import Outcome, Training

FILE = "kit.csv.gz"
COLUMNS = (
    *("problem", "config", "lr", "level", "kind", "seed"),
    # Means over the clean tasks (and the worst of these), the noisy tasks and all tasks.
    *("clean", "worst", "noisy", "overall"),
    # On noisy validation labels, lower is better; the clean tasks' share of the weight; the estimated noise.
    *("val", "cw", "eps_noisy", "eps_clean"),
)


def table(problem: str, runs: Runs, outcome: Outcome) -> pd.DataFrame:
    """A row per configuration, learning rate and case of one problem."""
    scores, weights, noise = (part.cpu().numpy() for part in (outcome.scores, outcome.weights, outcome.noise))
    bad = list(PROBLEMS[problem].noisy)
    good = [task for task in range(scores.shape[1]) if task not in bad]
    networks = [(config, rate, case) for config, rate in runs.combinations for case in runs.cases]
    frame = pd.DataFrame(
        [(problem, config.name, rate, case.level, case.kind, case.seed) for config, rate, case in networks],
        columns=list(COLUMNS[:6]),
    )
    return frame.assign(
        clean=scores[:, good].mean(1),
        worst=scores[:, good].min(1),
        noisy=scores[:, bad].mean(1),
        overall=scores.mean(1),
        val=outcome.validation.cpu().numpy(),
        cw=weights[:, good].sum(1),
        eps_noisy=noise[:, bad].mean(1),
        eps_clean=noise[:, good].mean(1),
    )


def _some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown: choose from {', '.join(known)}")
        return text.split(",")

    return read


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _arrays(path: Path | None, names: Sequence[str]) -> Arrays:
    needed = {array for name in names for array in PROBLEMS[name].arrays}
    if not needed:
        return {}
    if path is None:
        raise ValueError(
            "--data is missing: name choose.npz, which research/kit/prepare.py makes, or t-... problems only"
        )
    try:
        with np.load(path) as file:
            return {array: file[array] for array in sorted(needed)}
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"--data {path} cannot be used ({error}): research/kit/prepare.py makes one") from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all configurations on all problems."""
    parser = argparse.ArgumentParser(prog="python -m research.kit", description=__doc__)
    add = parser.add_argument
    add("--configs", type=Path, required=True, help="JSON file of configurations, like research/kit/configs.json")
    add("--out", type=Path, required=True, help=f"folder that {FILE} is written to")
    add("--problems", type=_some_of(PROBLEMS), default=list(PROBLEMS), help=f"some of {','.join(PROBLEMS)}")
    add("--data", type=Path, help="choose.npz, as `python -m research.kit.prepare` makes it")
    add("--levels", type=_numbers, default=[0.0, 0.3, 0.6], help="shares of labels that are disturbed")
    add("--kinds", type=_some_of(KINDS), default=["uniform"], help=f"kinds of noise, of {', '.join(KINDS)}")
    add("--lrs", type=_numbers, default=[1e-3, 3e-3], help="learning rates")
    add("--seeds", type=int, default=3, help="how many")
    add("--epochs", type=float, default=1.0, help="factor on every problem's number of epochs")
    wanted = parser.parse_args(arguments)
    try:
        chosen, arrays = read_configs(wanted.configs), _arrays(wanted.data, wanted.problems)
    except ValueError as error:
        parser.error(str(error))
    if wanted.seeds < 1 or not all(0 <= share <= 1 for share in wanted.levels):
        parser.error(f"--seeds is {wanted.seeds} and --levels {wanted.levels}: give 1 or more, and shares from 0 to 1")
    # Without noise its kind makes no difference.
    pairs = [(share, kind) for share in wanted.levels for kind in wanted.kinds if share or kind == wanted.kinds[0]]
    cases = [Case(share, kind, seed) for share, kind in pairs for seed in range(wanted.seeds)]
    runs = Runs(chosen, wanted.lrs, cases, "cuda" if torch.cuda.is_available() else "cpu")
    tables = []
    for name in wanted.problems:
        start, problem = time.perf_counter(), PROBLEMS[name]
        training = Training(problem, load(problem, arrays, cases, runs.device), runs)
        tables.append(table(name, runs, training.run(max(1, round(problem.epochs * wanted.epochs)))))
        print(f"{name}: {runs.count} networks on {runs.device}, {time.perf_counter() - start:.1f} s", flush=True)
    with atomic_write(wanted.out / FILE) as file:
        packing = {"method": "gzip", "compresslevel": 9, "mtime": 0}
        pd.concat(tables)[list(COLUMNS)].to_csv(file, index=False, float_format="%.6g", compression=packing)


if __name__ == "__main__":
    main()
