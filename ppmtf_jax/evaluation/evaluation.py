"""Utility metrics (Murakami et al. 2021, section 4.3), and all metrics at once beside Training and Uniform.

All of them are lower for better traces. A distribution is compared with that of the test users, whom no synthesizer
saw. Conventions are those of the published evaluation: total variation is half the L1 distance, a slot without events
counts as the uniform distribution, a place never left as one that is always stayed at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from scipy import sparse

from ppmtf_jax.attacks.membership import mia_advantage
from ppmtf_jax.attacks.reidentification import reid_rate
from ppmtf_jax.attacks.scoring import has_transitions
from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.progress import progress_bar

N_TOP = 50
MIN_EVENTS = 5
UNIFORM_SEED = 0
Box = tuple[float, float, float, float]
"""(south, north, west, east), degrees."""


@dataclass(frozen=True)
class Metric:
    """What a number of `evaluate` means. Of every one, lower is better.

    Parameters
    ----------
    name : str
        Its key.
    title : str
        As printed.
    meaning : str
        One sentence.
    good_value : str
        What to hope for.
    undefined : str
        When it is NaN, or "" if never.
    """

    name: str
    title: str
    meaning: str
    good_value: str
    undefined: str = ""


_NO_TRANSITIONS = "no transition to attack with: no two consecutive events in the training or in the synthetic traces"
_NO_TEST_TRANSITIONS = "no transition in the test traces"
_NEAR_TRAINING = "near Training"
METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric(
                "tp_tv",
                "TP-TV",
                "Total variation between the distributions over places of the synthetic and the test events, averaged "
                "over the slots.",
                _NEAR_TRAINING,
            ),
            Metric(
                "tp_tv_top50",
                "TP-TV-Top50",
                f"TP-TV where only the {N_TOP} places that the test users visit most in the slot count.",
                _NEAR_TRAINING,
            ),
            Metric(
                "tm_emd_y",
                "TM-EMD-Y",
                "Earth mover's distance, in bins of latitude, between where the synthetic and the test users go next, "
                "averaged over the places.",
                "below 1 (a bin)",
                _NO_TEST_TRANSITIONS,
            ),
            Metric(
                "tm_emd_x",
                "TM-EMD-X",
                "The same in bins of longitude.",
                "below 1 (a bin)",
                _NO_TEST_TRANSITIONS,
            ),
            Metric(
                "vf_tv",
                "VF-TV",
                "Total variation between the distributions of the share of a user's events at a place, over users with "
                f"at least {MIN_EVENTS} events, averaged over the places.",
                _NEAR_TRAINING,
                f"no place that users with at least {MIN_EVENTS} events visit among others in both real sets",
            ),
            Metric(
                "reid_rate",
                "Re-identification rate",
                "Share of the synthetic traces whose user is guessed right by one who knows all training traces.",
                "near Uniform",
                _NO_TRANSITIONS,
            ),
            Metric(
                "mia_advantage",
                "Membership advantage",
                "True minus false positive rate of the best guess at who was a training user, by one who knows all "
                "real traces.",
                "below 0.1",
                _NO_TRANSITIONS,
            ),
        )
    }
)


def population_by_slot(traces: Traces) -> np.ndarray:
    """Distribution of the events of each slot over places; uniform for a slot without events.

    Returns
    -------
    float64 array, shape (slots, places)

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> bool(np.allclose(population_by_slot(toy_city(n_users=5, seed=0).traces).sum(axis=1), 1))
    True
    """
    n_slots, n_places = traces.time_grid.n_slots, traces.n_places
    cell = traces.slot.astype(np.int64) * n_places + traces.place
    count = np.bincount(cell, minlength=n_slots * n_places).reshape(n_slots, n_places).astype(np.float64)
    total = count.sum(axis=1, keepdims=True)
    return np.where(total > 0, count / np.maximum(total, 1), 1 / n_places)


def transition_counts(traces: Traces) -> sparse.csr_array:
    """How often each place follows each at consecutive instants, over all users; shape (places, places)."""
    after = np.flatnonzero(traces.is_step())
    pair = (traces.place[after - 1], traces.place[after])
    # Converting sums what is at the same cell.
    return sparse.coo_array((np.ones(len(after)), pair), shape=(traces.n_places, traces.n_places)).tocsr()


def transition_matrix(traces: Traces) -> sparse.csr_array:
    """Transition counts with rows that sum to 1; the row of a place that nobody left is that of the identity.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> matrix = transition_matrix(toy_city(n_users=5, seed=0).traces)
    >>> bool(np.allclose(matrix.sum(axis=1), 1))
    True
    """
    counts = transition_counts(traces)
    total = counts.sum(axis=1)
    return (
        sparse.diags_array(1 / np.maximum(total, 1)) @ counts + sparse.diags_array((total == 0).astype(np.float64))
    ).tocsr()


def visit_fractions(traces: Traces, n_bins: int) -> np.ndarray:
    """Histogram over users, for each place, of the share of a user's events that are there.

    Bins are (0, 1/n], (1/n, 2/n], ..., (1 - 1/n, 1). Users with fewer than 5 events, shares of 0, and shares of
    exactly 1 do not count.

    Returns
    -------
    int64 array, shape (places, n_bins)
        Numbers of users.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> visit_fractions(toy_city(n_users=5, seed=0).traces, 24).shape[1]
    24
    """
    n_events = np.bincount(traces.user, minlength=traces.n_users)
    cell, count = np.unique(traces.user.astype(np.int64) * traces.n_places + traces.place, return_counts=True)
    user, place = np.divmod(cell, traces.n_places)
    total = n_events[user]
    counted = (total >= MIN_EVENTS) & (count < total)
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    fraction_bin = -(-count * n_bins // total) - 1
    histogram = np.bincount((place * n_bins + fraction_bin)[counted], minlength=traces.n_places * n_bins)
    return histogram.reshape(traces.n_places, n_bins)


def tp_tv(traces: Traces, test: Traces) -> float:
    """TP-TV of `traces`, all trace numbers taken together; see `METRICS`.

    Raises
    ------
    InputError
        The numbers of slots or the place tables differ.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, seed=0).traces
    >>> tp_tv(traces, traces)
    0.0
    """
    check_comparable(traces=traces, test=test)
    return _total_variation(population_by_slot(traces), population_by_slot(test))


def tp_tv_top50(traces: Traces, test: Traces, *, n_top: int = N_TOP) -> float:
    """TP-TV over the `n_top` places most visited in each slot of the test traces (ties: first in the place table)."""
    check_comparable(traces=traces, test=test)
    return _top_variation(population_by_slot(traces), population_by_slot(test), n_top)


def tm_emd(traces: Traces, test: Traces, *, n_bins: int = 20, box: Box | None = None) -> tuple[float, float]:
    """TM-EMD-Y and TM-EMD-X of `traces`, all trace numbers taken together; see `METRICS`.

    Parameters
    ----------
    traces, test : Traces
    n_bins : int
        Number of equal bins of the box on each axis.
    box : (south, north, west, east), optional
        Degrees; places outside belong to the outermost bins. The bounding box of the places where not given.

    Returns
    -------
    y, x : float
        In bins; NaN if the test traces have no transition.

    Raises
    ------
    InputError
        The numbers of slots or the place tables differ, or the box is empty.
    """
    check_comparable(traces=traces, test=test)
    axes = _axes(test.places, n_bins, box)
    return _mean_emds(_onward(traces, axes), _onward(test, axes), has_transitions(test))


def vf_tv(traces: Traces, train: Traces, test: Traces, *, n_bins: int | None = None) -> float:
    """VF-TV of `traces`, all trace numbers taken together; see `METRICS`.

    The mean is over places that have a histogram in both `train` and `test`; where `traces` have none, all of theirs is
    in the lowest bin. NaN if there is no such place.

    Parameters
    ----------
    traces, train, test : Traces
    n_bins : int, optional
        Number of instants of one period of the grid of `traces` where not given.
    """
    check_comparable(traces=traces, train=train, test=test)
    n_bins = n_bins or traces.time_grid.one_period().n_instants
    return _fraction_variation(*(visit_fractions(each, n_bins) for each in (traces, train, test)))


def evaluate(
    synthetic: Traces,
    train: Traces,
    test: Traces,
    *,
    attacks: bool = True,
    n_bins: int = 20,
    box: Box | None = None,
    progress: bool = False,
) -> dict[str, float]:
    """All metrics of a synthetic set, beside those of the training set (_train) and of uniform places (_uniform).

    Utility is computed for each trace number of the synthetic set and averaged, as published. The trace numbers of the
    real sets only mark breaks, so these are taken whole, also where the training set is attacked: a user's traces
    together are then one. Attacks on Uniform are attacks on the synthetic set with every place replaced by a random
    one (seed 0): what an attacker gets from traces that depend on nobody.

    Parameters
    ----------
    synthetic : Traces
        Of training users, not necessarily of all, on a grid with the slots of the real sets.
    train, test : Traces
        Real traces of users who were, and were not, used to make the synthetic ones.
    attacks : bool
        Also attack; then the sets' users matter.
    n_bins, box
        See `tm_emd`.
    progress : bool
        Show a progress bar where there is a terminal.

    Returns
    -------
    dict
        A number for each key of `METRICS` (without the attacks if they are left out), and for the same with `_train`
        and `_uniform`. NaN where it is undefined; `METRICS` says when.

    Raises
    ------
    InputError
        The numbers of slots or the place tables differ, the box is empty, synthetic users are not training users, or
        users are in both real sets.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> metrics = evaluate(train, train, test)
    >>> metrics["tp_tv"] == metrics["tp_tv_train"] < metrics["tp_tv_uniform"]
    True
    """
    check_comparable(synthetic=synthetic, train=train, test=test)
    axes = _axes(test.places, n_bins, box)
    n_fractions = synthetic.time_grid.one_period().n_instants
    attacked = {
        "": lambda: _attack(synthetic, train, test),
        "_train": lambda: _attack(train, train, test, pool_traces=True),
        "_uniform": lambda: _attack(_with_uniform_places(synthetic), train, test),
    }
    n_parts = len(np.unique(synthetic.trace_table()[1]))
    n_steps = 2 + n_parts + (len(attacked) if attacks else 0)
    with progress_bar("evaluating", n_steps, show=progress, waits_for="") as advance:

        def summary(traces: Traces) -> _Summary:
            result = _summary(traces, axes, n_fractions)
            advance(1)
            return result

        real_train, real_test = summary(train), summary(test)
        uniform = _uniform_summary(real_test, axes)
        per_number = [_utility(summary(part), real_train, real_test) for part in _by_number(synthetic)]
        metrics = {name: float(np.mean([values[name] for values in per_number])) for name in per_number[0]}
        columns = {"": metrics, "_train": _utility(real_train, real_train, real_test)}
        columns["_uniform"] = _utility(uniform, real_train, real_test)
        for suffix, attack in attacked.items() if attacks else ():
            columns[suffix] |= attack()
            advance(1)
    return {name + suffix: values[name] for name in columns[""] for suffix, values in columns.items()}


@dataclass(frozen=True)
class _Summary:
    """What the utility metrics need of a trace set.

    Parameters
    ----------
    population : float array, shape (slots, places)
    onward : two float arrays, shape (places, bins)
        Where users go next from each place, by bin of latitude and of longitude.
    fractions : int array, shape (places, fraction bins)
    has_transitions : bool
    """

    population: np.ndarray
    onward: tuple[np.ndarray, np.ndarray]
    fractions: np.ndarray
    has_transitions: bool


_Axes = tuple[np.ndarray, np.ndarray]


def _summary(traces: Traces, axes: _Axes, n_fractions: int) -> _Summary:
    return _Summary(
        population_by_slot(traces),
        _onward(traces, axes),
        visit_fractions(traces, n_fractions),
        has_transitions(traces),
    )


def _uniform_summary(like: _Summary, axes: _Axes) -> _Summary:
    """Every place equally likely, whatever the slot and the place before."""
    n_places, n_fractions = like.fractions.shape
    fractions = np.zeros_like(like.fractions)
    fractions[:, -(-n_fractions // n_places) - 1] = 1
    onward = tuple(np.tile(axis.mean(axis=0), (n_places, 1)) for axis in axes)
    return _Summary(np.full_like(like.population, 1 / n_places), onward, fractions, True)


def _utility(released: _Summary, train: _Summary, test: _Summary) -> dict[str, float]:
    emd_y, emd_x = _mean_emds(released.onward, test.onward, test.has_transitions)
    return {
        "tp_tv": _total_variation(released.population, test.population),
        "tp_tv_top50": _top_variation(released.population, test.population, N_TOP),
        "tm_emd_y": emd_y,
        "tm_emd_x": emd_x,
        "vf_tv": _fraction_variation(released.fractions, train.fractions, test.fractions),
    }


def _attack(released: Traces, train: Traces, test: Traces, *, pool_traces: bool = False) -> dict[str, float]:
    return {
        "reid_rate": reid_rate(released, train, pool_traces=pool_traces),
        "mia_advantage": mia_advantage(released, train, test, pool_traces=pool_traces),
    }


def _by_number(traces: Traces) -> Iterator[Traces]:
    """The traces of each trace number."""
    number = traces.trace_table()[1]
    for each in np.unique(number):
        yield traces.select_traces(number == each)


def _with_uniform_places(traces: Traces) -> Traces:
    place = np.random.default_rng(UNIFORM_SEED).integers(traces.n_places, size=traces.n_events, dtype=np.int32)
    return replace(traces, place=place)


def _total_variation(distribution: np.ndarray, test: np.ndarray) -> float:
    """Half the L1 distance of rows, averaged."""
    return float(np.abs(distribution - test).sum(axis=1).mean() / 2)


def _top_variation(population: np.ndarray, test: np.ndarray, n_top: int) -> float:
    top = np.argsort(-test, axis=1, kind="stable")[:, :n_top]
    return _total_variation(np.take_along_axis(population, top, axis=1), np.take_along_axis(test, top, axis=1))


def _axes(places: PlaceTable, n_bins: int, box: Box | None) -> _Axes:
    """Which bin of latitude, and of longitude, each place is in: 0-1 matrices of shape (places, bins)."""
    south, north, west, east = box or places.bounding_box()
    problems = []
    if n_bins < 1:
        problems.append(Problem("at least one bin", repr(n_bins)))
    if box is not None and not (south < north and west < east):
        problems.append(Problem("a box (south, north, west, east) with south < north and west < east", repr(box)))
    if problems:
        raise InputError("bins of the transition matrix", problems)
    return (
        _bin_indicator(places.latitude, south, north, n_bins),
        _bin_indicator(places.longitude, west, east, n_bins),
    )


def _bin_indicator(value: np.ndarray, low: float, high: float, n_bins: int) -> np.ndarray:
    # All places may be on one line; the greatest value belongs to the last bin.
    width = (high - low) / n_bins or 1.0
    which = np.clip(np.floor((value - low) / width), 0, n_bins - 1).astype(np.int64)
    return np.eye(n_bins)[which]


def _onward(traces: Traces, axes: _Axes) -> tuple[np.ndarray, np.ndarray]:
    matrix = transition_matrix(traces)
    y, x = (np.asarray(matrix @ axis) for axis in axes)
    return y, x


def _mean_emds(
    onward: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], defined: bool
) -> tuple[float, float]:
    """Earth mover's distance of rows over ordered bins, averaged, on both axes: the sum of |difference of cdfs|."""
    if not defined:
        return float("nan"), float("nan")
    y, x = (float(np.abs(np.cumsum(a - b, axis=1)).sum(axis=1).mean()) for a, b in zip(onward, test, strict=True))
    return y, x


def _fraction_variation(released: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    known = (train.sum(axis=1) > 0) & (test.sum(axis=1) > 0)
    if not known.any():
        return float("nan")
    released, test = released[known].astype(np.float64), test[known]
    released[released.sum(axis=1) == 0, 0] = 1
    return _total_variation(released / released.sum(axis=1, keepdims=True), test / test.sum(axis=1, keepdims=True))
