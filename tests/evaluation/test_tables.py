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
from ppmtf_jax.evaluation.results import TableOrList
from tests.support import evaluation_of

QUANTITIES = list(EvaluationSettings().quantities().values())
FIRST = QUANTITIES[:3]
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
        assert line.split().count(quantity.text(0.25)) == 3
        assert quantity.good_value in line


def test_four_columns_of_numbers_fit_80_characters() -> None:
    """Long titles are wrapped; numbers and words are not, and nothing is cut off beside five columns."""
    lines = printed(full("released", "all", "training", "uniform", tm_emd_y=19.87654)).splitlines()
    assert max(map(len, lines)) <= 80
    # Means over the cells of a table have three digits, but no zeros at their end.
    numbers = [line for line in lines if len(re.findall(r" (?:0\.25(?:00)?|19\.8765)(?= )", line)) == 4]
    assert len(numbers) == len(QUANTITIES)
    for line, quantity in zip(numbers, QUANTITIES, strict=True):
        assert line.rstrip().endswith(quantity.good_value)
        assert line.split()[0] == quantity.title.split()[0]
    words = {word for quantity in QUANTITIES for word in quantity.title.split()}
    assert words <= set(" ".join(lines).split())
    assert "…" not in printed(full("bridge", "ppmtf", "sgd", "training", "uniform", tm_emd_y=-19.87654))


def test_directions_signs_and_counts() -> None:
    """The direction is told where it is unusual; a count has none; what is best at 0 may be negative."""
    more = MetricInfo("kept", "Kept", "Share of the traces.", "share of traces", "higher", "near 1")
    count = MetricInfo("n", "Counted", "A number.", "traces", "none", "-")
    bias = MetricInfo("bias", "Bias", "A number.", "km", "zero", "near Training")
    balance = MetricInfo("balance", "Balance", "A number.", "km", "zero", "near 0")
    numbers = [(more, [0.5, 0.5]), (count, [5000.0, 2.5]), (bias, [-0.25, -1e-9]), (balance, [0.3, 0.1])]
    numbers += [(each, [0.4, 0.4]) for each in FIRST]
    text = printed(evaluation_of(["synthetic", "training"], numbers))
    assert "lower is better" in text
    assert "(lower)" not in text
    cells = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.split()}
    assert cells["Kept"] == ["0.5000", "0.5000", "near", "1", "(higher)"]
    assert cells["Counted"] == ["5000", "2.5000", "-"]
    assert cells["Bias"] == ["-0.2500", "0.0000", "near", "Training", "(closest", "to", "0)"]
    # Where the good value says which is better, it is not said again.
    assert cells["Balance"] == ["0.3000", "0.1000", "near", "0"]


def test_references_stand_with_the_good_value() -> None:
    references = {"floor": 0.2613, "everybody alike": 0.0123, "nobody": -0.5, "all": 1.0, "few": -0.0}
    evaluation = evaluation_of(["synthetic"], [(FIRST[2], [0.4])], {FIRST[2].name: Interpretation(references)})
    assert "near Training; floor 0.26, everybody alike 0.012, nobody -0.50, all 1, few 0 " in printed(evaluation, 120)


def test_a_caveat_marks_its_row_and_its_reason_stands_below_once() -> None:
    readings = {
        FIRST[0].name: Interpretation(caveats=(Caveat("few", CAVEAT),)),
        FIRST[2].name: Interpretation(caveats=(Caveat("other", "Another"), Caveat("few", CAVEAT))),
    }
    columns = ["released", "all", "training", "uniform"]
    evaluation = evaluation_of(columns, [(each, [0.25] * 4) for each in FIRST], readings)
    for width in (80, 120):
        text = printed(evaluation, width, note="All: what there is.")
        assert max(map(len, text.splitlines())) <= width
        words = [line.split() for line in text.splitlines() if "0.2500" in line]
        assert [each[:2] for each in words] == [["TP-TV", "†"], ["TP-TV-Top50", "0.2500"], ["TM-EMD-Y", "†"]]
        below = [line.rstrip() for line in text.split("All: what there is.")[1].splitlines()]
        assert below == ["", f"† TP-TV, TM-EMD-Y: {CAVEAT}.", "† TM-EMD-Y: Another."]
    assert [row.style for row in format_table(evaluation).rows] == ["dim", None, "dim"]


def test_a_number_worse_than_chance_is_marked_and_told_below() -> None:
    columns = ["released", "training", "uniform"]
    readings = {FIRST[0].name: Interpretation(alarm=0.25)}
    text = " ".join(printed(evaluation_of(columns, [(FIRST[0], [0.3, 0.9, 0.4])], readings), 120).split())
    assert "! 0.3000 0.9000 0.4000" in text
    assert "! Too high: TP-TV (released 0.3000; alarms above 0.25). These traces reveal" in text
    assert "!" not in printed(evaluation_of(columns, [(FIRST[0], [0.25, 0.9, 0.4])], readings), 120)


@pytest.mark.parametrize("width", [30, 80])
def test_no_number_is_cut_off_on_a_narrow_terminal(width: int) -> None:
    evaluation = full("released", "all", "ppmtf", vf_tv=math.nan)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(TableOrList(evaluation, note="All: before."))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    n_numbers = sum(len(row.numbers) for row in evaluation.rows)
    assert len(re.findall(r"\d\.\d{2,4}| -(?= )", text)) >= n_numbers
    assert "All: before. Undefined, shown as -." in text
    assert ("─" in text) == (width >= 80)


def test_a_reason_of_undefined_numbers_stands_below_once() -> None:
    text = " ".join(printed(full("synthetic", tm_emd_y=math.nan, tm_emd_x=math.nan), 160).split())
    reason = next(each.undefined for each in QUANTITIES if each.name == "tm_emd_y")
    assert text.endswith(f"Undefined, shown as -. TM-EMD-Y, TM-EMD-X: {reason}.")
    assert "Undefined" not in printed(full("synthetic"))


def test_attacks_stand_apart() -> None:
    rows = [row._replace(kind="privacy" if row.quantity.name == "reid_rate" else "utility") for row in full("a").rows]
    lines = printed(Evaluation(rows), 100).splitlines()
    (attack,) = [number for number, line in enumerate(lines) if "Re-identification" in line]
    assert not lines[attack - 1].strip()
    assert all(line.strip() for line in lines[4 : attack - 1])


def test_published_metrics_come_first_and_those_nobody_named_last() -> None:
    metrics = list(METRICS)
    assert metrics[:6] == ["tp_tv", "tm_emd", "vf_tv", "tp_swd", "tm_tv", "stay_difference"]
    METRICS.register(Measurement("a_new_one", "utility", (), lambda comparison, settings: []))
    try:
        assert list(METRICS) == [*metrics, "a_new_one"]
    finally:
        METRICS.remove("a_new_one")
