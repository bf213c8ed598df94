"""The table says what `evaluate` found, undefined numbers included, and fits a terminal."""

from __future__ import annotations

import io
import math
import re

import pytest
from rich.console import Console

from ppmtf_jax.data.measurement import Caveat, Interpretation, Measurement, MetricInfo
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings, format_table
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.evaluation.tables import TableOrList
from tests.support import evaluation_of

QUANTITIES = list(EvaluationSettings().quantities().values())


CAVEAT = "Too few users for this number"


def printed(evaluation: Evaluation, width: int = 80, note: str = "") -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(format_table(evaluation, note=note))
    return console.file.getvalue()


def full(*columns: str, **values: float) -> Evaluation:
    """Every number 0.25, but for those of some metrics."""
    return evaluation_of(columns, [(each, [values.get(each.name, 0.25)] * len(columns)) for each in QUANTITIES])


def test_every_metric_is_in_the_table_with_direction_and_good_value() -> None:
    text = printed(full("synthetic", "training", "uniform"), 100)
    assert text.splitlines()[0].strip() == "Utility and privacy: lower is better, unless said otherwise"
    for quantity in QUANTITIES:
        (line,) = [line for line in text.splitlines() if line.startswith(f" {quantity.title}  ")]
        assert line.count("0.2500") == 3
        assert quantity.good_value in line


def test_four_columns_of_numbers_fit_80_characters() -> None:
    """Long titles are wrapped; numbers and words are not."""
    lines = printed(full("released", "all", "training", "uniform", tm_emd_y=19.87654)).splitlines()
    assert max(map(len, lines)) <= 80
    numbers = [line for line in lines if line.count("0.2500") + line.count("19.8765") == 4]
    assert len(numbers) == len(QUANTITIES)
    for line, quantity in zip(numbers, QUANTITIES, strict=True):
        assert line.rstrip().endswith(quantity.good_value)
        assert line.split()[0] == quantity.title.split()[0]
    words = {word for quantity in QUANTITIES for word in quantity.title.split()}
    assert words <= set(" ".join(lines).split())
    assert [name for name in ("Released", "All", "Training", "Uniform") if name not in lines[2]] == []


def test_no_title_is_cut_off_beside_five_columns() -> None:
    text = printed(full("bridge", "ppmtf", "sgd", "training", "uniform", tm_emd_y=-19.87654))
    assert "…" not in text


def test_each_direction_is_told_where_they_differ() -> None:
    more = MetricInfo("kept", "Kept", "Share of the traces.", "share of traces", "higher", "near 1")
    text = printed(evaluation_of(["synthetic"], [(QUANTITIES[2], [0.4]), (more, [0.5])]))
    assert "near 1 (higher)" in text
    assert "lower is better" in text
    assert "(lower)" not in text


def test_what_is_neither_good_nor_bad_is_a_count_and_what_is_best_at_0_may_be_negative() -> None:
    count = MetricInfo("n", "Counted", "A number.", "traces", "none", "-")
    bias = MetricInfo("bias", "Bias", "A number.", "km", "zero", "near Training")
    balance = MetricInfo("balance", "Balance", "A number.", "km", "zero", "near 0")
    numbers = [(count, [5000.0, 2.5]), (bias, [-0.25, -1e-9]), (balance, [0.3, 0.1])]
    numbers += [(each, [0.4, 0.4]) for each in QUANTITIES[:3]]
    lines = printed(evaluation_of(["synthetic", "training"], numbers)).splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    assert cells["Counted"] == ["5000", "2.5000", "-"]
    assert cells["Bias"] == ["-0.2500", "0.0000", "near", "Training", "(closest", "to", "0)"]
    # Where the good value says which is better, it is not said again.
    assert cells["Balance"] == ["0.3000", "0.1000", "near", "0"]


def test_references_stand_with_the_good_value() -> None:
    references = {"floor": 0.2613, "everybody alike": 0.0123, "nobody": -0.5, "all": 1.0, "few": -0.0}
    evaluation = evaluation_of(
        ["synthetic"], [(QUANTITIES[2], [0.4])], {QUANTITIES[2].name: Interpretation(references)}
    )
    assert "near Training; floor 0.26, everybody alike 0.012, nobody -0.50, all 1, few 0 " in printed(evaluation, 120)


def test_a_caveat_marks_its_row_and_its_reason_stands_below_once() -> None:
    assert [each.title for each in QUANTITIES[:3]] == ["TP-TV", "TP-TV-Top50", "TM-EMD-Y"]
    readings = {
        QUANTITIES[0].name: Interpretation(caveats=(Caveat("few", CAVEAT),)),
        QUANTITIES[2].name: Interpretation(caveats=(Caveat("other", "Another"), Caveat("few", CAVEAT))),
    }
    columns = ["released", "all", "training", "uniform"]
    evaluation = evaluation_of(columns, [(each, [0.25] * 4) for each in QUANTITIES[:3]], readings)
    for width in (80, 120):
        text = printed(evaluation, width, note="All: what there is.")
        assert max(map(len, text.splitlines())) <= width
        words = [line.split() for line in text.splitlines() if "0.2500" in line]
        assert [each[0] for each in words] == ["TP-TV", "TP-TV-Top50", "TM-EMD-Y"]
        assert [each[1] for each in words] == ["†", "0.2500", "†"]
        below = [line.rstrip() for line in text.split("All: what there is.")[1].splitlines()]
        assert below == ["", f"† TP-TV, TM-EMD-Y: {CAVEAT}.", "† TM-EMD-Y: Another."]
    dim = [row.style for row in format_table(evaluation).rows]
    assert dim == ["dim", None, "dim"]


def test_a_number_worse_than_chance_is_marked_and_told_below() -> None:
    columns = ["released", "training", "uniform"]
    readings = {QUANTITIES[0].name: Interpretation(alarm=0.25)}
    text = printed(evaluation_of(columns, [(QUANTITIES[0], [0.3, 0.9, 0.4])], readings), 120)
    assert "! 0.3000 0.9000 0.4000" in " ".join(text.split())
    assert "! Too high: TP-TV (released 0.3000; alarms above 0.25). These traces reveal" in " ".join(text.split())
    assert "!" not in printed(evaluation_of(columns, [(QUANTITIES[0], [0.25, 0.9, 0.4])], readings), 120)


@pytest.mark.parametrize("width", [30, 80])
def test_no_number_is_cut_off_on_a_narrow_terminal(width: int) -> None:
    evaluation = full("released", "all", "ppmtf", vf_tv=math.nan)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(TableOrList(evaluation, note="All: before."))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    n_numbers = sum(len(row.numbers) for row in evaluation.rows)
    assert len(re.findall(r"\d\.\d{4}| -(?= )", text)) >= n_numbers
    assert "All: before. Undefined, shown as -." in text
    assert ("─" in text) == (width >= 80)


def test_a_reason_of_several_undefined_numbers_stands_below_once() -> None:
    text = " ".join(printed(full("synthetic", tm_emd_y=math.nan, tm_emd_x=math.nan), 160).split())
    reason = next(each.undefined for each in QUANTITIES if each.name == "tm_emd_y")
    assert text.endswith(f"Undefined, shown as -. TM-EMD-Y, TM-EMD-X: {reason}.")


def test_an_undefined_number_has_its_reason_below() -> None:
    text = printed(full("synthetic", vf_tv=math.nan), 160)
    assert "Undefined" in text
    reason = next(each.undefined for each in QUANTITIES if each.name == "vf_tv")
    assert reason in " ".join(text.split("Undefined")[1].split())
    assert "Undefined" not in printed(full("synthetic"))


def test_attacks_stand_apart() -> None:
    rows = [row._replace(kind="privacy" if row.quantity.name == "reid_rate" else "utility") for row in full("a").rows]
    lines = printed(Evaluation(rows), 100).splitlines()
    (attack,) = [number for number, line in enumerate(lines) if "Re-identification" in line]
    assert not lines[attack - 1].strip()
    assert all(line.strip() for line in lines[4 : attack - 1])


def test_published_metrics_come_first_and_those_nobody_named_last() -> None:
    metrics = list(METRICS)
    assert metrics[:4] == ["tp_tv", "tm_emd", "vf_tv", "stay_difference"]
    METRICS.register(Measurement("a_new_one", "utility", (), lambda comparison, settings: []))
    try:
        assert list(METRICS) == [*metrics, "a_new_one"]
    finally:
        METRICS.remove("a_new_one")
