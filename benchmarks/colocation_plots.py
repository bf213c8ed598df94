"""The pictures of `colocations.py plot`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ppmtf_jax.evaluation.plots.style import DIM, LINE_COLOURS, styled

KINDS = dict(zip(("laplace", "privelet", "privelet, weighted", "no noise"), (*LINE_COLOURS[:3], DIM), strict=True))
LINES = {"greedy": "-", "bounded": "--"}
SYSTEMS = {"published": LINE_COLOURS[5], "ours": LINE_COLOURS[0]}
REFERENCES = {"tpm": ("TPM", LINE_COLOURS[2]), "uniform": ("Uniform", DIM)}


def draw(stem: str) -> dict[str, Figure]:
    """Each picture by its name."""
    counts, traces, members, attack = (
        pd.read_csv(f"{stem}_{name}.csv") for name in ("counts", "traces", "members", "attack")
    )
    return {
        "probability": probability(counts[counts["what"] == "friendship probability"]),
        "counts": of_counts(counts[counts["what"] == "co-locations"]),
        "traces": of_traces(traces),
        "attacks": of_attacks(members, attack),
    }


@styled
def probability(table: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    ax = figure.subplots()
    for (name, rows), colour in zip(table.groupby("data", sort=False), LINE_COLOURS, strict=False):
        ax.plot(rows["epsilon"], rows["mae"] / rows["true"], "o-", color=colour, label=name, markersize=3)
    ax.axhline(0.1, color=DIM, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="epsilon of friendships", ylabel="error over the true probability")
    ax.annotate("a tenth", (0.01, 0.1), color=DIM, va="bottom", fontsize=8)
    ax.legend(frameon=False)
    figure.suptitle("Friendship probability with noise (Fig. 7)")
    return figure


@styled
def of_counts(table: pd.DataFrame) -> Figure:
    """Error by category and instant, divided by the error of the answer 0: by the limit c above, by epsilon below."""
    names = table["data"].unique()
    figure = Figure(figsize=(2.1 * len(names), 5.4), layout="constrained")
    axes = figure.subplots(2, len(names), sharey="row")
    for column, name in enumerate(names):
        rows = table[table["data"] == name]
        kinds = (("c", "limit c (epsilon 1)", "epsilon", 1, 100), ("epsilon", "epsilon (c 5)", "c", 5, 3000))
        for ax, (x, label, fixed, value, most) in zip(axes[:, column], kinds, strict=True):
            for (kind, rule), line in _lines(rows[rows[fixed] == value], x):
                ax.plot(line[x], line["mae"] / line["true"], LINES[rule], color=KINDS[kind], marker="o", markersize=2.5)
            ax.axhline(1, color="black", linewidth=0.8, linestyle=":")
            ax.set(yscale="log", ylim=(0.2, most), xlabel=label)
        axes[0, column].set(title=name, xticks=[1, 5, 10, 15, 20])
        axes[1, column].set_xscale("log")
    for ax in axes[:, 0]:
        ax.set_ylabel("MAE over that of saying 0")
    handles = [_handle(color=colour, label=kind) for kind, colour in KINDS.items()]
    handles += [_handle(color="black", linestyle=line, label=f"{rule} rule") for rule, line in LINES.items()]
    handles.append(_handle(color="black", linewidth=0.8, linestyle=":", label="saying 0"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.suptitle("Co-locations by category and hour (Figs. 8, 10)")
    return figure


@styled
def of_traces(table: pd.DataFrame) -> Figure:
    """Error of population and transitions, and the number of co-locations, by the number of drawn co-locations."""
    names = table["data"].unique()
    figure = Figure(figsize=(2.3 * len(names), 6.6), layout="constrained")
    axes = figure.subplots(3, len(names), sharex=True, sharey="row")
    for column, name in enumerate(names):
        rows = table[table["data"] == name]
        for ax, what in zip(axes[:, column], ("population", "transitions"), strict=False):
            of_what = rows[rows["what"] == what].set_index("system")
            for system, colour in SYSTEMS.items():
                line = of_what.loc[system]
                ax.errorbar(line["theta"], line["mae"], 2 * line["mae_se"], color=colour, marker="o", markersize=2.5)
            for system, (_, colour) in REFERENCES.items():
                ax.axhline(of_what.loc[system, "mae"], color=colour, linestyle="--", linewidth=1)
        for system, colour in SYSTEMS.items():
            line = rows[(rows["system"] == system) & (rows["what"] == "population")]
            axes[2, column].plot(line["theta"], line["co_locations"], "o-", color=colour, markersize=2.5)
        axes[2, column].plot([1, 5000], [1, 5000], color=DIM, linestyle=":")
        axes[2, column].set(yscale="log", xscale="log", xlabel="meetings drawn, theta")
        axes[0, column].set_title(name)
    for ax, label in zip(axes[:, 0], ("MAE, population", "MAE, transitions", "co-locations in all"), strict=True):
        ax.set_ylabel(label)
    axes[2, 0].annotate("as many as drawn", (3, 1.3), color=DIM, fontsize=7)
    handles = [_handle(color=colour, marker="o", markersize=3, label=name) for name, colour in SYSTEMS.items()]
    handles += [_handle(color=colour, linestyle="--", label=name) for name, colour in REFERENCES.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.suptitle("Synthetic traces by the number of meetings (Figs. 12, 14)")
    return figure


@styled
def of_attacks(members: pd.DataFrame, attack: pd.DataFrame) -> Figure:
    """Above: membership inference from synthetic traces. Below: the attack on one user from noisy counts."""
    figure = Figure(figsize=(8.1, 5.4), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey="row")
    for ax, (name, rows) in zip(axes[0], members.groupby("data", sort=False), strict=True):
        of_data = rows[(rows["system"] == "ours") & (rows["epsilon"] <= 10)].groupby("epsilon")
        mean, error = of_data[["advantage", "chance"]].mean(), of_data["advantage"].sem()
        ax.errorbar(mean.index, mean["advantage"], 2 * error, color=LINE_COLOURS[0], marker="o", markersize=3)
        ax.plot(mean.index, mean["chance"], color=DIM, linestyle=":")
        itself = rows.loc[rows["system"] == "the data itself", "advantage"].mean()
        ax.axhline(itself, color=LINE_COLOURS[5], linestyle="--", linewidth=1)
        ax.set(title=f"traces: {name}", ylim=(0, 0.25))
    for ax, (name, rows) in zip(axes[1], attack[attack["c"] == 1].groupby("data", sort=False), strict=True):
        for rule, of_rule in rows.groupby("rule", sort=False):
            ax.plot(of_rule["epsilon"], of_rule["advantage"], LINES[str(rule)], color=LINE_COLOURS[1], marker="o", ms=3)
        ax.set(title=f"noisy counts, c = 1: {name}", ylim=(0, 1.03), xlabel="epsilon")
    epsilon = np.geomspace(0.1, 10, 50)
    for ax in axes.flat:
        ax.plot(epsilon, np.tanh(epsilon / 2), color="black", linewidth=0.8)
        ax.set_xscale("log")
    for ax in axes[:, 0]:
        ax.set_ylabel("advantage")
    handles = [
        _handle(color=LINE_COLOURS[0], marker="o", markersize=3, label="membership, synthetic traces"),
        _handle(color=LINE_COLOURS[5], linestyle="--", label="membership, the data itself"),
        _handle(color=DIM, linestyle=":", label="by chance"),
        _handle(color=LINE_COLOURS[1], label="one user, greedy counts"),
        _handle(color=LINE_COLOURS[1], linestyle="--", label="one user, bounded counts"),
        _handle(color="black", linewidth=0.8, label="bound of epsilon"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("Attacks: true minus false positive rate")
    return figure


def _lines(rows: pd.DataFrame, x: str) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    for (kind, rule), line in rows.groupby(["mechanism", "rule"], sort=False):
        yield (str(kind), str(rule)), line.sort_values(x)


def _handle(**how: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **how)
