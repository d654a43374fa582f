"""The pictures of the theory study."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.lab.paper.registry import canvas
from excessmtl.lab.paper.theory.convergence import Row
from excessmtl.lab.paper.theory.formulation import BEST
from excessmtl.lab.paper.theory.problems import KINDS, Array


def _log(axes: Axes, **labels: str) -> None:
    axes.set(xscale="log", yscale="log", **labels)
    axes.grid(alpha=0.3)


def _mark(axes: Axes, horizons: Sequence[float]) -> None:
    """Ticks at the horizons alone: between two powers of ten the usual ones run into each other."""
    axes.set_xticks(horizons, [str(horizon) for horizon in horizons])
    axes.set_xticks([], minor=True)


def _legend_below(picture: Figure, axes: Axes) -> None:
    picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)


def convergence(rows: Sequence[Row]) -> Figure:
    """Above: duality gap and bound. Below: the left side of Theorem 3.1 exactly as stated, which may be negative."""
    picture = canvas(11, 6.6)
    grid = picture.subplots(2, 3, height_ratios=(3, 2))
    table = pd.DataFrame(rows)
    colours = {tasks: f"C{i}" for i, tasks in enumerate(sorted(table.tasks.unique()))}
    markers = {"all tasks": ("o", "-"), "one task": ("s", ":")}
    for column, kind in enumerate(KINDS):
        above, below = grid[0, column], grid[1, column]
        for (sampled, tasks), own in table[table.problem == kind].groupby(["sampled", "tasks"]):
            colour, (marker, line) = colours[tasks], markers[sampled]
            style = {"color": colour, "marker": marker, "ms": 4, "ls": line}
            label = f"gap, m = {tasks}, {sampled} a step"
            above.errorbar(own.horizon, own.duality_gap, own.duality_gap_se, label=label, **style)
            below.plot(own.horizon, own.stated, **style)
            above.plot(own.horizon, own.bound, color=colour, ls="--", lw=1, alpha=0.7)
        _log(above, title=kind, ylabel="duality gap (bound dashed)" if column == 0 else "")
        below.axhline(0, color="black", lw=0.8)
        below.set(xscale="log", xlabel="horizon T", ylabel="left side as stated" if column == 0 else "")
        below.grid(alpha=0.3)
    _legend_below(picture, grid[0, 0])
    return picture


def assumptions(rows: Sequence[Row]) -> Figure:
    """The same problems with one thing at a time as in Algorithm 1: averaged iterate and last iterate."""
    picture = canvas(11, 4.4)
    grid = picture.subplots(1, 3)
    table = pd.DataFrame(rows)
    for axes, kind in zip(grid, KINDS, strict=True):
        variants = table[table.problem == kind].groupby("variant", sort=False)
        for index, (variant, own) in enumerate(variants):
            # Several lie on top of each other: that is a result, so the lower ones are drawn wider.
            axes.plot(own.horizon, own.worst_task, color=f"C{index}", lw=5 - 0.8 * index, alpha=0.7, label=variant)
            axes.plot(own.horizon, own.last_iterate, color=f"C{index}", ls=":", lw=1.2)
        _log(axes, title=f"{kind}, m = 2", xlabel="horizon T")
        _mark(axes, table.horizon.unique())
    grid[0].set_ylabel("largest excess risk above the min-max\n(dotted: last iterate)")
    _legend_below(picture, grid[0])
    return picture


def front(edge: Array, rows: Sequence[Row]) -> Figure:
    """Corollary 3.2: averaged solutions beside the exact front."""
    picture = canvas(9, 4)
    whole, close = picture.subplots(1, 2)
    table = pd.DataFrame(rows)
    centre = table.min_max.iloc[0]
    for axes in (whole, close):
        axes.plot(edge[:, 0], edge[:, 1], color="black", lw=1.2, label="exact front")
        axes.plot([0, edge.max()], [0, edge.max()], color="gray", lw=0.6, label="equal excess risks")
        axes.plot(centre, centre, "k+", ms=12, label="min-max (solver)")
        for sampled, marker in (("one task", "s"), ("all tasks", "o")):
            for index, row in enumerate(table[table.sampled == sampled].itertuples()):
                style = {"marker": marker, "mfc": "none", "color": f"C{index}", "ms": 6, "ls": ""}
                axes.plot(row.excess_1, row.excess_2, label=f"T = {row.horizon}, {sampled} a step", **style)
        axes.set(xlabel="excess risk of task 1", ylabel="excess risk of task 2")
        axes.grid(alpha=0.3)
    reach = 1.3 * (table[["excess_1", "excess_2"]] - centre).abs().to_numpy().max()
    close.set(xlim=(centre - reach, centre + reach), ylim=(centre - reach, centre + reach), title="near the min-max")
    whole.set_title("logistic regression, m = 2")
    whole.legend(fontsize=7)
    return picture


def stationarity(rows: Sequence[Row], curve: Sequence[Row]) -> Figure:
    """Theorem 3.3: the smallest squared norm so far within the longest run, and over horizons beside the bound."""
    picture = canvas(9, 3.8)
    left, right = picture.subplots(1, 2)
    steps, table = pd.DataFrame(curve), pd.DataFrame(rows)
    left.plot(steps.step, steps.mean_square, color="C0", lw=0.8, alpha=0.6, label="mean over runs at step k")
    left.plot(steps.step, steps.smallest_so_far, color="C0", label="smallest so far")
    _log(left, title=f"one horizon, T = {table.horizon.iloc[-1]}", xlabel="step k")
    left.set_ylabel(r"$\|\sum_i \alpha_i \nabla \ell_i\|^2$")
    right.plot(table.horizon, table.smallest, "o-", color="C0", label="smallest over k")
    right.plot(table.horizon, table.bound, "--", color="C1", label=r"bound $6m\sigma\sqrt{B_\ell G/T}$")
    right.axhline(table.L_squared[0], color="gray", lw=0.8, label=r"$L^2$: above it a bound says nothing")
    _log(right, title="over horizons", xlabel="horizon T")
    _mark(right, table.horizon)
    for axes in (left, right):
        axes.legend(fontsize=8)
    return picture


def formulation(edge: Array, reached: Sequence[Row], ends: Sequence[Row], ways: dict[str, Array]) -> Figure:
    """Left: what each scalarization reaches of a front that bulges. Right: methods that stop in dominated points."""
    picture = canvas(10, 4.4)
    left, right = picture.subplots(1, 2)
    left.plot(edge[:, 0], edge[:, 1], color="black", lw=1, label="front of two Welsch losses")
    table = pd.DataFrame(reached)
    for name, marker, size in (("tchebycheff", "o", 5), ("linear", "X", 9)):
        own = table[table.scalarization == name]
        label = f"{name}, {len(own)} weightings"
        left.plot(own.loss_1, own.loss_2, marker, ms=size, alpha=0.8, ls="", label=label)
    left.set(xlabel="loss of task 1", ylabel="loss of task 2", title="what a scalarization can reach")
    left.legend(fontsize=8)
    for index, row in enumerate(ends):
        way, colour = ways[row["method"]], f"C{index}"
        note, marker = (" (dominated)", "s") if row["dominated"] else ("", "o")
        right.plot(way[:, 0], way[:, 1], color=colour, lw=1.5, label=f"{row['method']}{note}")
        right.plot(row["theta_1"], row["theta_2"], marker, color=colour, ms=7, mfc="none")
    right.plot(*BEST, "k*", ms=13, label="best for both tasks")
    right.set(xlabel="parameter of task 1 (clean)", ylabel="parameter of task 2 (noisy)", xlim=(-0.02, 1.08))
    right.set_title(f"no conflict, {ends[0]['steps']} steps from (0, 0)", fontsize=10)
    right.legend(fontsize=8, loc="lower right")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return picture
