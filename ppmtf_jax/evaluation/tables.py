"""The numbers of `evaluate` as a table to read and as JSON to keep."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping

from rich.table import Table

from ppmtf_jax.evaluation.evaluation import METRICS
from ppmtf_jax.runtime.files import write_text

COLUMNS = {"": "Synthetic", "_train": "Training", "_uniform": "Uniform"}


def format_table(metrics: Mapping[str, float]) -> Table:
    """A table of all metrics beside Training and Uniform; print it with `rich.print`.

    Examples
    --------
    >>> table = format_table({"tp_tv": 0.43, "tp_tv_train": 0.39, "tp_tv_uniform": 0.53})
    >>> [column.header for column in table.columns]
    ['Metric', 'Synthetic', 'Training', 'Uniform', 'A good value']
    """
    table = Table(
        title="Utility and privacy: lower is better", caption=_undefined_note(metrics), caption_justify="left"
    )
    table.add_column("Metric", no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("A good value")
    for name, metric in METRICS.items():
        if name in metrics:
            numbers = [_number(metrics.get(name + suffix, math.nan)) for suffix in COLUMNS]
            table.add_row(metric.title, *numbers, metric.good_value)
    return table


def write_json(path: str | os.PathLike[str], metrics: Mapping[str, float]) -> None:
    """Write the metrics as a JSON object in one step; an undefined one becomes null, for JSON knows no NaN.

    Raises
    ------
    InputError
        The file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "metrics.json"
    >>> write_json(path, {"tp_tv": 0.5, "vf_tv": float("nan")})
    >>> json.loads(path.read_text())
    {'tp_tv': 0.5, 'vf_tv': None}
    """
    content = {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "-"


def _undefined_note(metrics: Mapping[str, float]) -> str | None:
    """Why some of the numbers are missing; None if none is."""
    reasons = [
        f"{metric.title}: {metric.undefined}"
        for name, metric in METRICS.items()
        if math.isnan(metrics.get(name, 0.0)) and metric.undefined
    ]
    return "Undefined, shown as -. " + "; ".join(reasons) + "." if reasons else None
