"""The table and the JSON file say what `evaluate` found, undefined numbers included."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from ppmtf_jax.evaluation.evaluation import METRICS
from ppmtf_jax.evaluation.tables import format_table, write_json


def printed(metrics: dict[str, float]) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(format_table(metrics))
    console.file.close()
    return console.export_text()


def full(value: float) -> dict[str, float]:
    return {name + suffix: value for name in METRICS for suffix in ("", "_train", "_uniform")}


def test_every_metric_is_in_the_table_with_direction_and_good_value() -> None:
    text = printed(full(0.25))
    assert "lower is better" in text
    for metric in METRICS.values():
        (line,) = [line for line in text.splitlines() if f" {metric.title} " in line]
        assert line.count("0.2500") == 3
        assert metric.good_value in line


def test_metrics_that_were_not_computed_have_no_row() -> None:
    text = printed({"tp_tv": 0.4, "tp_tv_train": 0.3, "tp_tv_uniform": 0.5})
    assert "TP-TV" in text
    assert "VF-TV" not in text


def test_an_undefined_number_has_its_reason_below() -> None:
    metrics = full(0.25) | {"vf_tv": math.nan}
    text = printed(metrics)
    assert "Undefined" in text
    assert METRICS["vf_tv"].undefined.split()[0] in text.split("Undefined")[1]
    assert "Undefined" not in printed(full(0.25))


def test_json_is_valid_where_a_number_is_undefined(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_json(path, full(1 / 3) | {"vf_tv": math.nan})
    text = path.read_text(encoding="utf-8")
    assert "NaN" not in text
    content = json.loads(text)
    assert content["vf_tv"] is None
    assert content["tp_tv"] == 1 / 3
    assert list(content) == list(full(0))


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_every_metric_is_explained(metric) -> None:
    assert metric.meaning.endswith(".")
    assert metric.good_value
