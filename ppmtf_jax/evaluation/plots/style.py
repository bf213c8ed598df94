"""How all pictures look, and how they become files: equal content gives equal bytes, and a mark names this library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.files import atomic_file

T = TypeVar("T")

MAKER = "ppmtf_jax"
_PNG_TEXT = b"Software\0" + MAKER.encode()
FORMATS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    # The length of a text chunk precedes it, so a longer name does not match.
    ".png": ({"Software": MAKER}, b"\x89PNG\r\n\x1a\n", len(_PNG_TEXT).to_bytes(4) + b"tEXt" + _PNG_TEXT),
    ".svg": ({"Creator": MAKER, "Date": None}, b"<?xml", f"<dc:title>{MAKER}</dc:title>".encode()),
    ".pdf": ({"Creator": MAKER, "Producer": None, "CreationDate": None}, b"%PDF-", f"/Creator ({MAKER})".encode()),
}
"""Metadata for Matplotlib, first bytes of every file, and our mark in the file."""
DPI = 150
# From Okabe and Ito: people with any colour vision can tell them apart.
LINE_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
# Training data and uniform traces have their own colours; synthetic sets have the others, in this order.
REAL_COLOUR, UNIFORM_COLOUR = LINE_COLOURS[2], "#BBBBBB"
SYNTHETIC_COLOURS = [colour for colour in LINE_COLOURS if colour != REAL_COLOUR]
MAP_COLOURS = "YlGnBu"
NOTHING = "#F0F0F0"
DIM = "#666666"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "figure.titlesize": 11,
    "legend.title_fontsize": 11,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Ids and categories may hold dollar signs; they are text, not formulas.
    "text.parse_math": False,
}
styled = rc_context(STYLE)
"""Decorator: the function draws in `STYLE`."""
UPPER: dict[str, Any] = {"loc": "outside upper center"}
LOWER: dict[str, Any] = {"loc": "outside lower center"}
"""Legend of a figure above or below its panels."""

Draw = Callable[["Axes"], object]


@styled
def panels(
    draws: Sequence[Draw],
    *,
    size: tuple[float, float],
    n_columns: int = 2,
    room: tuple[float, float] = (0.0, 0.0),
    legend: dict[str, Any] | None = None,
    title: str = "",
) -> Figure:
    """A figure with a panel for each drawing function, and one legend.

    Lengths are in inches: `size` of a panel, `room` beside and above the panels. `legend` is `UPPER` or `LOWER`, with
    more options if needed; the legend shows every label of the axes once.
    """
    n_columns = min(n_columns, len(draws))
    n_rows = -(-len(draws) // n_columns)
    width, height = size[0] * n_columns + room[0], size[1] * n_rows + room[1]
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[len(draws) :]:
        ax.remove()
    for ax, draw in zip(axes, draws, strict=False):
        draw(ax)
    if legend is not None:
        found = {label: line for ax in figure.axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(**{"handles": list(found.values()), "ncols": len(found), "frameon": False} | legend)
    if title:
        figure.suptitle(title)
    return figure


def label_slots(ax: Axes, labels: Sequence[str], n_labels: int) -> None:
    """Label at most `n_labels` slots on the x axis, with the hour below the day."""
    every = -(-len(labels) // n_labels)
    ax.set_xticks(np.arange(0, len(labels), every), [label.replace(" ", "\n") for label in labels[::every]])


def coloured(sets: Mapping[str, T]) -> Iterator[tuple[str, T, str]]:
    """Name, value and line colour of each set."""
    for (name, value), colour in zip(sets.items(), cycle(LINE_COLOURS), strict=False):
        yield name, value, colour


def check_sets(sets: Mapping[str, Traces], subject: str, *more: Problem) -> None:
    """Refuse an empty mapping, and sets on different places."""
    if not sets or more:
        raise InputError(subject, [*([] if sets else [Problem("at least one trace set", "none")]), *more])
    check_same_places(**sets)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a picture in the format of its name: complete or not at all, and only its owner may read it.

    The same content gives the same bytes. Raises `InputError`: the format is not known, or the file cannot be written.
    """
    suffix = check_picture_name(path)
    # The salt of the hashes that are ids within an SVG; otherwise Matplotlib takes a random salt.
    with atomic_file(path) as partial, rc_context({"svg.hashsalt": MAKER}):
        figure.savefig(partial, dpi=DPI, format=suffix[1:], metadata=FORMATS[suffix][0])


def check_picture_name(path: str | os.PathLike[str]) -> str:
    """The suffix of a name, in lower case.

    Raises `InputError`: the name ends in no known format.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise InputError(str(path), [Problem(f"a name that ends in {', '.join(FORMATS)}", suffix or "none of them")])
    return suffix


def is_own_picture(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a picture that `save_figure` wrote, in the format of its name."""
    (_, begins, mark), file = FORMATS[check_picture_name(path)], Path(path)
    content = file.read_bytes() if file.is_file() else b""
    return content.startswith(begins) and mark in content
