"""The pictures of the theory study."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from excessmtl.paper.registry import canvas
from excessmtl.paper.theory.convergence import Row
from excessmtl.paper.theory.dominated import BEST
from excessmtl.paper.theory.problems import KINDS, Array


def _pick(rows: Sequence[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _columns(rows: Sequence[Row], *names: str) -> list[list[float]]:
    return [[row[name] for row in rows] for name in names]


def _log(axes: Axes, **labels: str) -> None:
    axes.set(xscale="log", yscale="log", **labels)
    axes.grid(alpha=0.3)


def _mark(axes: Axes, horizons: Sequence[float]) -> None:
    """Ticks at the horizons alone: between two powers of ten the usual ones run into each other."""
    axes.set_xticks(horizons, [str(horizon) for horizon in horizons])
    axes.set_xticks([], minor=True)


def convergence(rows: Sequence[Row]) -> Figure:
    """Above: duality gap and bound. Below: the left side of Theorem 3.1 exactly as stated, which may be negative."""
    picture = canvas(11, 6.6)
    grid = picture.subplots(2, 3, height_ratios=(3, 2))
    colours = {tasks: f"C{i}" for i, tasks in enumerate(sorted({row["tasks"] for row in rows}))}
    for column, kind in enumerate(KINDS):
        above, below = grid[0, column], grid[1, column]
        for sampled, marker, style in (("all tasks", "o", "-"), ("one task", "s", ":")):
            for tasks, colour in colours.items():
                mine = _pick(rows, problem=kind, tasks=tasks, sampled=sampled)
                if not mine:
                    continue
                horizons, gap, error, bound, stated = _columns(
                    mine, "horizon", "duality_gap", "duality_gap_se", "bound", "stated"
                )
                label = f"gap, m = {tasks}, {sampled} a step"
                above.errorbar(horizons, gap, error, color=colour, marker=marker, ms=4, ls=style, label=label)
                below.plot(horizons, stated, color=colour, marker=marker, ms=4, ls=style)
                above.plot(horizons, bound, color=colour, ls="--", lw=1, alpha=0.7)
        _log(above, title=kind, ylabel="duality gap (bound dashed)" if column == 0 else "")
        below.axhline(0, color="black", lw=0.8)
        below.set(xscale="log", xlabel="horizon T", ylabel="left side as stated" if column == 0 else "")
        below.grid(alpha=0.3)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return picture


def assumptions(rows: Sequence[Row]) -> Figure:
    """The same problems with one thing at a time as in Algorithm 1: averaged iterate and last iterate."""
    picture = canvas(11, 4.4)
    grid = picture.subplots(1, 3)
    for axes, kind in zip(grid, KINDS, strict=True):
        for index, variant in enumerate(dict.fromkeys(row["variant"] for row in rows)):
            horizons, gap, last = _columns(
                _pick(rows, problem=kind, variant=variant), "horizon", "worst_task", "last_iterate"
            )
            # Several lie on top of each other: that is a result, so the lower ones are drawn wider.
            axes.plot(horizons, gap, color=f"C{index}", lw=5 - 0.8 * index, alpha=0.7, label=variant)
            axes.plot(horizons, last, color=f"C{index}", ls=":", lw=1.2)
        _log(axes, title=f"{kind}, m = 2", xlabel="horizon T")
        _mark(axes, horizons)
    grid[0].set_ylabel("largest excess risk above the min-max\n(dotted: last iterate)")
    handles, labels = grid[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return picture


def front(edge: Array, rows: Sequence[Row]) -> Figure:
    """Corollary 3.2: averaged solutions beside the exact front."""
    picture = canvas(9, 4)
    whole, close = picture.subplots(1, 2)
    for axes in (whole, close):
        axes.plot(edge[:, 0], edge[:, 1], color="black", lw=1.2, label="exact front")
        axes.plot([0, edge.max()], [0, edge.max()], color="gray", lw=0.6, label="equal excess risks")
        axes.plot(rows[0]["min_max"], rows[0]["min_max"], "k+", ms=12, label="min-max (solver)")
        for sampled, marker in (("one task", "s"), ("all tasks", "o")):
            for index, row in enumerate(_pick(rows, sampled=sampled)):
                label = f"T = {row['horizon']}, {sampled} a step"
                axes.plot(
                    row["excess_1"], row["excess_2"], marker, mfc="none", color=f"C{index}", ms=6, ls="", label=label
                )
        axes.set(xlabel="excess risk of task 1", ylabel="excess risk of task 2")
        axes.grid(alpha=0.3)
    centre = rows[0]["min_max"]
    reach = 1.3 * max(max(abs(row["excess_1"] - centre), abs(row["excess_2"] - centre)) for row in rows)
    close.set(xlim=(centre - reach, centre + reach), ylim=(centre - reach, centre + reach), title="near the min-max")
    whole.set_title("logistic regression, m = 2")
    whole.legend(fontsize=7)
    return picture


def stationarity(rows: Sequence[Row], curve: Sequence[Row]) -> Figure:
    """Theorem 3.3: the smallest squared norm so far within the longest run, and over horizons beside the bound."""
    picture = canvas(9, 3.8)
    left, right = picture.subplots(1, 2)
    steps, now, least = _columns(curve, "step", "mean_square", "smallest_so_far")
    left.plot(steps, now, color="C0", lw=0.8, alpha=0.6, label="mean over runs at step k")
    left.plot(steps, least, color="C0", label="smallest so far")
    _log(left, title=f"one horizon, T = {rows[-1]['horizon']}", xlabel="step k")
    left.set_ylabel(r"$\|\sum_i \alpha_i \nabla \ell_i\|^2$")
    horizons, smallest, bound = _columns(rows, "horizon", "smallest", "bound")
    right.plot(horizons, smallest, "o-", color="C0", label="smallest over k")
    right.plot(horizons, bound, "--", color="C1", label=r"bound $6m\sigma\sqrt{B_\ell G/T}$")
    right.axhline(rows[0]["L_squared"], color="gray", lw=0.8, label=r"$L^2$: above it a bound says nothing")
    _log(right, title="over horizons", xlabel="horizon T")
    _mark(right, horizons)
    for axes in (left, right):
        axes.legend(fontsize=8)
    return picture


def formulation(edge: Array, reached: Sequence[Row], ends: Sequence[Row], ways: dict[str, Array]) -> Figure:
    """Left: what each scalarization reaches of a front that bulges. Right: methods that stop in dominated points."""
    picture = canvas(10, 4.4)
    left, right = picture.subplots(1, 2)
    left.plot(edge[:, 0], edge[:, 1], color="black", lw=1, label="front of two Welsch losses")
    for name, marker, size in (("tchebycheff", "o", 5), ("linear", "X", 9)):
        one, two = _columns(_pick(reached, scalarization=name), "loss_1", "loss_2")
        left.plot(one, two, marker, ms=size, alpha=0.8, ls="", label=f"{name}, {len(one)} weightings")
    left.set(xlabel="loss of task 1", ylabel="loss of task 2", title="what a scalarization can reach")
    left.legend(fontsize=8)
    for index, row in enumerate(ends):
        way = ways[row["method"]]
        label = f"{row['method']}{' (dominated)' if row['dominated'] else ''}"
        right.plot(way[:, 0], way[:, 1], color=f"C{index}", lw=1.5, label=label)
        right.plot(
            row["theta_1"], row["theta_2"], "s" if row["dominated"] else "o", color=f"C{index}", ms=7, mfc="none"
        )
    right.plot(*BEST, "k*", ms=13, label="best for both tasks")
    right.set(xlabel="parameter of task 1 (clean)", ylabel="parameter of task 2 (noisy)", xlim=(-0.02, 1.08))
    right.set_title(f"no conflict, {ends[0]['steps']} steps from (0, 0)", fontsize=10)
    right.legend(fontsize=8, loc="lower right")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return picture
