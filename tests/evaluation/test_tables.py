"""The table says what `evaluate` found, undefined numbers included, and fits a terminal."""

from __future__ import annotations

import io
import math

import pandas as pd
import pytest
from rich.console import Console

from ppmtf_jax.data.measurement import Quantity
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings, format_table
from tests.support import evaluation_of

QUANTITIES = list(EvaluationSettings().quantities().values())


def printed(evaluation: Evaluation, width: int = 80, note: str = "") -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(format_table(evaluation, note=note))
    return console.file.getvalue()


def full(*columns: str, **values: float) -> Evaluation:
    """Every number 0.25, but for those of some metrics."""
    return evaluation_of(columns, [(each, [values.get(each.name, 0.25)] * len(columns)) for each in QUANTITIES])


def test_every_metric_is_in_the_table_with_direction_and_good_value() -> None:
    text = printed(full("synthetic", "training", "uniform"))
    assert "lower is better" in text
    for quantity in QUANTITIES:
        (line,) = [line for line in text.splitlines() if f" {quantity.title} " in line]
        assert line.count("0.2500") == 3
        assert quantity.good_value in line


def test_four_columns_of_numbers_fit_80_characters() -> None:
    lines = printed(full("released", "all", "training", "uniform", tm_emd_y=19.87654)).splitlines()
    assert max(map(len, lines)) <= 80
    for quantity in QUANTITIES:
        (line,) = [line for line in lines if f" {quantity.title} " in line]
        assert line.rstrip().endswith(quantity.good_value)
        assert line.count("0.2500") + line.count("19.8765") == 4
    assert [name for name in ("Released", "All", "Training", "Uniform") if name not in lines[2]] == []


def test_metrics_that_were_not_computed_have_no_row() -> None:
    text = printed(evaluation_of(["synthetic"], [(QUANTITIES[2], [0.4])]))
    assert "TP-TV" in text
    assert "VF-TV" not in text


def test_each_direction_is_told_where_they_differ() -> None:
    more = Quantity("kept", "Kept", "Share of the traces.", "share of traces", "higher", "near 1")
    text = printed(evaluation_of(["synthetic"], [(QUANTITIES[0], [0.4]), (more, [0.5])]))
    assert "near 1 (higher is better)" in text
    assert "below 1 (a bin) (lower is better)" in text


def test_an_undefined_number_has_its_reason_below() -> None:
    text = printed(full("synthetic", vf_tv=math.nan), 160)
    assert "Undefined" in text
    reason = next(each.undefined for each in QUANTITIES if each.name == "vf_tv")
    assert reason in " ".join(text.split("Undefined")[1].split())
    assert "Undefined" not in printed(full("synthetic"))


def test_a_note_stands_below() -> None:
    text = printed(full("released", "all", vf_tv=math.nan), 160, note="All: before the privacy test.")
    assert text.index("All: before the privacy test.") < text.index("Undefined")


@pytest.mark.parametrize("columns", [["synthetic"], ["released", "all", "training", "uniform"]])
def test_rows_and_columns_are_those_of_the_table(columns: list[str]) -> None:
    evaluation = full(*columns)
    assert evaluation.columns == columns
    assert isinstance(evaluation.table, pd.DataFrame)
    assert [quantity for quantity, _ in evaluation.rows()] == QUANTITIES
