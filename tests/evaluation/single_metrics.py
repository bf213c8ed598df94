"""Published metrics of two sets, computed by what is registered, all trace numbers taken together."""

from __future__ import annotations

from typing import Any

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.registry import METRICS


def measured(name: str, traces: Traces, train: Traces, test: Traces, **settings: Any) -> list[float]:
    check_comparable(traces=traces, train=train, test=test)
    comparison = Comparison(traces, train, test, traces.time_grid.one_period().n_instants)
    return list(METRICS[name].measure(comparison, METRICS[name].settings(**settings)))


def tp_tv(traces: Traces, test: Traces) -> float:
    return measured("tp_tv", traces, test, test)[0]


def tp_tv_top50(traces: Traces, test: Traces, **settings: Any) -> float:
    return measured("tp_tv", traces, test, test, **settings)[1]


def tm_emd(traces: Traces, test: Traces, **settings: Any) -> tuple[float, ...]:
    return tuple(measured("tm_emd", traces, test, test, **settings))


def vf_tv(traces: Traces, train: Traces, test: Traces, **settings: Any) -> float:
    return measured("vf_tv", traces, train, test, **settings)[0]
