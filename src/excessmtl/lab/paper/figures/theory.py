"""`excessmtl reproduce theory`: every check of this folder, as tables and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import pandas as pd
from joblib import Parallel, delayed

from excessmtl.lab.paper.plans import Scale
from excessmtl.lab.paper.registry import Drawing, figure
from excessmtl.lab.paper.theory import formulation, plots, stationarity
from excessmtl.lab.paper.theory.convergence import Row, approach, compare, estimators, measure, rate
from excessmtl.lab.paper.theory.descent import ALGORITHM, PROOF, Variant
from excessmtl.lab.paper.theory.optimum import solve
from excessmtl.lab.paper.theory.problems import KINDS, make

_QUARTERS = [1024, 4096, 16384, 65536]


@dataclass(frozen=True)
class Plan:
    """How much is run at a scale."""

    runs: int
    all_tasks: dict[int, list[int]]
    """m -> horizons, all tasks a step."""
    one_task: dict[int, list[int]]
    """m -> horizons, one task a step; steps are m times smaller, so only long horizons see the gap fall."""
    assumptions: list[int]
    library_steps: int
    library_runs: int
    network: list[int]


PLANS: dict[Scale, Plan] = {
    "quick": Plan(
        runs=8,
        all_tasks={m: [1024, 8192, 32768] for m in (2, 8, 32)},
        one_task={2: [1024, 8192, 65536], 8: [256, 1024, 4096], 32: [256, 1024, 4096]},
        assumptions=[512, 2048, 8192],
        library_steps=512,
        library_runs=2,
        network=[512, 2048, 8192],
    ),
    "paper": Plan(
        runs=32,
        all_tasks={m: [*_QUARTERS, 262_144] for m in (2, 4, 8, 16, 32)},
        one_task={2: _QUARTERS, 4: [*_QUARTERS, 262_144], 8: [*_QUARTERS[1:], 262_144, 1_048_576], 32: _QUARTERS[2:]},
        assumptions=_QUARTERS,
        library_steps=4096,
        library_runs=5,
        network=[1024, 4096, 16384, 65536],
    ),
}


def _convergence(kind: str, tasks: int, horizons: list[int], runs: int, variant: Variant) -> list[Row]:
    # Fewer tasks are cheaper, and start nearer to the saddle point: more runs, or noise hides the rate.
    return measure(solve(make(kind, tasks)), horizons, max(runs, 64 // tasks), 0, variant)


def _transient(runs: int) -> list[Row]:
    """The problem whose gap takes longest to fall at its final rate, with the rate since the horizon before."""
    rows = measure(solve(make("huber", 4)), [*_QUARTERS, 262_144], max(runs, 16), 0, ALGORITHM)
    since: list[float | None] = [None, *(rate(pair) for pair in pairwise(rows))]
    return [{**row, "rate_since_the_row_above": value} for row, value in zip(rows, since, strict=True)]


def _with_two_tasks(kind: str, plan: Plan) -> dict[str, list[Row]]:
    """The tables that need nothing but a problem of two tasks."""
    solved = solve(make(kind, 2))
    wrong = replace(ALGORITHM, towards=-1)
    return {
        "wrong_update": measure(solved, plan.all_tasks[2], plan.runs, 0, wrong),
        "assumptions": compare(solved, plan.assumptions, plan.runs, 0),
        "estimators": estimators(solved, plan.library_steps, 8, plan.library_runs),
    }


def rates(rows: Sequence[Row]) -> list[Row]:
    """The fitted rate and the range of looseness of each problem and oracle, where three or more horizons were run."""
    found = []
    for (problem, tasks, sampled), table in pd.DataFrame(rows).groupby(["problem", "tasks", "sampled"], sort=False):
        first = table.iloc[0]
        if len(table) >= 3:
            found.append(
                {
                    "problem": problem,
                    "tasks": tasks,
                    "sampled": sampled,
                    "horizons": f"{first.horizon}..{table.horizon.iloc[-1]}",
                    "rate": rate(table.to_dict("records")),
                    # Shorter than this the proof's weights have hardly moved, and neither has the gap.
                    "long_enough": sampled == "all tasks" or first.horizon >= 64 * tasks**2,
                    "under_bound": (table.duality_gap <= table.bound).all(),
                    "smallest_looseness": table.looseness.min(),
                    "largest_looseness": table.looseness.max(),
                    # The gap cannot exceed B_l, so before this horizon the bound says nothing.
                    "first_horizon_with_bound_below_B_l": int(first.horizon * (first.bound / first.B_l) ** 2),
                }
            )
    return found


@figure("theory", "Theorem 3.1, Corollary 3.2, Theorem 3.3 and the formulation, on problems with known constants")
def theory(scale: Scale) -> Drawing:
    """Run, tabulate, draw."""
    plan = PLANS[scale]
    converge = [
        delayed(_convergence)(kind, tasks, horizons, plan.runs, variant)
        for variant, table in ((PROOF, plan.one_task), (ALGORITHM, plan.all_tasks))
        for tasks, horizons in sorted(table.items(), reverse=True)  # the longest first
        for kind in KINDS
    ]
    others = [
        delayed(stationarity.study)(plan.network, plan.runs),
        delayed(formulation.endings)(),
        delayed(_transient)(plan.runs),
    ]
    two_tasks = [delayed(_with_two_tasks)(kind, plan) for kind in KINDS]
    *done, (network, curve), (ends, ways), transient = Parallel(n_jobs=2)(two_tasks + converge + others)
    gaps = list(chain.from_iterable(done[len(KINDS) :]))
    small = {name: [row for tables in done[: len(KINDS)] for row in tables[name]] for name in done[0]}
    edge, reached_points = approach(solve(make("logistic", 2)), _QUARTERS[:3], plan.runs, 0)
    bulge, reached, summary = formulation.scalarizations()
    tables = {
        "convergence": gaps,
        "rates": rates(gaps),
        "transient": transient,
        **small,
        "front": reached_points,
        "stationarity": network,
        "stationarity_steps": curve,
        "identities": formulation.identities(),
        "scalarizations": reached,
        "scalarizations_summary": summary,
        "dominated": ends,
    }
    pictures = {
        "convergence": plots.convergence(gaps),
        "assumptions": plots.assumptions(small["assumptions"]),
        "front": plots.front(edge, reached_points),
        "stationarity": plots.stationarity(network, curve),
        "formulation": plots.formulation(bulge, reached, ends, ways),
    }
    return Drawing(
        {f"_{name}": rows for name, rows in tables.items()}, {f"_{name}": drawn for name, drawn in pictures.items()}
    )
