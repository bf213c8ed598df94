"""Pictures as files: equal content gives equal bytes, and a mark in the file names this library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.plots.bars import privacy_bars, utility_bars
from ppmtf_jax.evaluation.plots.clusters import Factors, user_clusters
from ppmtf_jax.evaluation.plots.maps import population_maps
from ppmtf_jax.evaluation.plots.matrices import transition_matrices
from ppmtf_jax.evaluation.plots.style import DPI
from ppmtf_jax.evaluation.results import Evaluation
from ppmtf_jax.runtime.files import atomic_file

MAKER = "ppmtf_jax"


_PNG_TEXT = b"Software\0" + MAKER.encode()
FORMATS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    # The length of a text chunk precedes it, so a longer name does not match.
    ".png": ({"Software": MAKER}, b"\x89PNG\r\n\x1a\n", len(_PNG_TEXT).to_bytes(4) + b"tEXt" + _PNG_TEXT),
    ".svg": ({"Creator": MAKER, "Date": None}, b"<?xml", f"<dc:title>{MAKER}</dc:title>".encode()),
    ".pdf": ({"Creator": MAKER, "Producer": None, "CreationDate": None}, b"%PDF-", f"/Creator ({MAKER})".encode()),
}
"""Metadata for Matplotlib, first bytes of every file, and our mark in the file."""


def save_pictures(
    folder: str | os.PathLike[str],
    *,
    synthetic: Traces,
    train: Traces,
    test: Traces,
    evaluation: Evaluation,
    factors: Factors | None = None,
) -> list[Path]:
    """Write population.png, transitions.png, utility.png; privacy.png if there are attacks, clusters.png with factors.

    Each file appears complete or not at all; existing ones are replaced. A missing folder is created. `factors`: those
    of a model fitted to `train`. Raises `InputError`: the folder cannot be written to, or the sets do not match.
    """
    figures = {
        "population.png": population_maps(synthetic, train, test),
        "transitions.png": transition_matrices(synthetic, train),
        "utility.png": utility_bars(evaluation),
    }
    if any(row.kind == "privacy" for row in evaluation.rows):
        figures["privacy.png"] = privacy_bars(evaluation)
    if factors is not None:
        figures["clusters.png"] = user_clusters(factors, synthetic, train)
    paths = [Path(folder) / name for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        save_figure(figure, path)
    return paths


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a picture in the format of its name: complete or not at all, and only its owner may read it.

    The same content gives the same bytes. Raises `InputError`: the format is not known, or the file cannot be written.
    """
    suffix = check_picture_name(path)
    # The salt of the hashes that are ids within an SVG; otherwise Matplotlib takes a random salt.
    with atomic_file(path) as partial, matplotlib.rc_context({"svg.hashsalt": MAKER}):
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
