"""How probable traces are under a model of other traces, by two densities; everything per event.

"chain": one Markov chain for everybody, in each slot, smoothed towards the chain of all slots and this towards visits
(Dirichlet priors, one inside the other). Linear in the number of events. "kernel": a mixture with a component for each
trace of the model, from which each event strays with a small probability to a place visited in its slot: the kernel of
Aitchison and Aitken (1976). It knows whole traces and not only steps; work is the product of both numbers of traces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.attacks.scoring import products_in_blocks
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.errors import InputError, Problem

Density = Literal["chain", "kernel"]
CONCENTRATION = 1e-3
"""Events that a prior weighs as much as. What no synthetic trace does tells most: that the user was not there."""
STRAY_PROBABILITY = 0.01


def windows_of(**trace_sets: Traces) -> list[Windows]:
    """The periods of trace sets, such as days.

    Parameters
    ----------
    **trace_sets : Traces
        By the names that the error calls them by.

    Raises
    ------
    InputError
        Their place tables or the periods of their grids differ.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> [windows.n_windows for windows in windows_of(train=toy_city(3, n_days=2, seed=0).traces)]
    [6]
    """
    check_same_places(**trace_sets)
    first_name, first = next(iter(trace_sets.items()))
    differ = [name for name, each in trace_sets.items() if not same_period(first.time_grid, each.time_grid)]
    if differ:
        expected = f"grids whose periods have the same instants and slots as that of {first_name}"
        raise InputError("trace sets", [Problem(expected, f"others in {', '.join(differ)}")])
    return [Windows.of(each) for each in trace_sets.values()]


def joined(windows: Windows, others: Windows) -> Windows:
    """Windows of two sets as one, each set's users apart.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(3, n_days=2, seed=0).traces)
    >>> joined(windows, windows).n_windows
    12
    """
    shift = {"window": windows.n_windows, "user": windows.user.max() + 1}
    columns = ("window", "phase", "place", "user")
    values = {name: (getattr(windows, name), getattr(others, name) + shift.get(name, 0)) for name in columns}
    return replace(windows, **{name: np.concatenate(pair) for name, pair in values.items()})


def log_density_per_event(
    windows: Windows, model: Windows, density: Density = "chain", *, concentration: float = CONCENTRATION
) -> Float[np.ndarray, " user"]:
    """Log-density of each user's windows under a model of others, over her number of events.

    Parameters
    ----------
    windows : Windows
        Whose log-density is wanted; each user has at least one.
    model : Windows
        What the density is learned from.
    density : {"chain", "kernel"}
    concentration : float
        Events that each prior of the chain weighs as much as.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows, others = windows_of(a=toy_city(9, seed=0).traces, b=toy_city(9, seed=1).traces)
    >>> bool((log_density_per_event(windows, windows) > log_density_per_event(windows, others)).all())
    True
    """
    of_window = DENSITIES[density](windows, model, concentration)
    return np.bincount(windows.user, of_window) / np.bincount(windows.user, windows.events_per_window())


class _Events(NamedTuple):
    """Slot, place and place before of events; whether the place before is that of the instant before."""

    slot: Int[np.ndarray, " event"]
    place: Int[np.ndarray, " event"]
    previous: Int[np.ndarray, " event"]
    is_step: np.ndarray

    @classmethod
    def of(cls, windows: Windows) -> _Events:
        place = windows.place.astype(np.int64)
        slot = windows.time_grid.slot_of_instant[windows.phase].astype(np.int64)
        return cls(slot, place, np.append(0, place[:-1]), windows.is_step())

    def steps(self) -> _Events:
        return _Events(*(column[self.is_step] for column in self))


def _chain(windows: Windows, model: Windows, concentration: float) -> Float[np.ndarray, " window"]:
    n_places, wanted, known = len(windows.places), _Events.of(windows), _Events.of(model)
    steps = known.steps()

    def share(events: _Events, context: Callable[[_Events], np.ndarray], prior: np.ndarray | float) -> np.ndarray:
        return _shares(events, wanted, context, prior, n_places, concentration)

    of_place = share(known, lambda events: np.zeros_like(events.place), 1 / n_places)
    of_slot = share(known, lambda events: events.slot, of_place)
    of_step = share(steps, lambda events: events.previous, of_place)
    of_step = share(steps, lambda events: events.slot * n_places + events.previous, of_step)
    probability = np.where(wanted.is_step, of_step, of_slot)
    return np.bincount(windows.window, np.log(probability), minlength=windows.n_windows)


def _kernel(windows: Windows, model: Windows, concentration: float) -> Float[np.ndarray, " window"]:
    del concentration
    n_places, wanted, known = len(windows.places), _Events.of(windows), _Events.of(model)
    of_slot = _shares(known, wanted, lambda events: events.slot, 1 / n_places, n_places, 1.0)
    stray = STRAY_PROBABILITY * of_slot
    gain = np.log(1 - STRAY_PROBABILITY + stray) - np.log(stray)
    strays = np.bincount(windows.window, np.log(stray), minlength=windows.n_windows)
    gains = _by_point(windows, gain)
    same = _by_point(model, np.ones(len(model.window))).T.tocsr()
    log_sum = np.empty(windows.n_windows)
    for rows, product in products_in_blocks(gains, same):
        log_sum[rows] = _log_sum_of_exponentials(product, model.n_windows)
    return strays + log_sum - np.log(model.n_windows)


DENSITIES: dict[str, Callable[[Windows, Windows, float], np.ndarray]] = {"chain": _chain, "kernel": _kernel}


def _shares(
    known: _Events,
    wanted: _Events,
    context: Callable[[_Events], np.ndarray],
    prior: np.ndarray | float,
    n_places: int,
    concentration: float,
) -> Float[np.ndarray, " event"]:
    """Probability of each wanted place in its context, by counts and a Dirichlet prior."""
    given, asked = context(known), context(wanted)
    count = count_of(given * n_places + known.place, asked * n_places + wanted.place)
    return (count + concentration * prior) / (count_of(given, asked) + concentration)


def count_of(codes: Int[np.ndarray, " known"], wanted: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
    """How often each wanted code is among the known ones."""
    codes = np.sort(codes)
    return np.searchsorted(codes, wanted, side="right") - np.searchsorted(codes, wanted)


def _by_point(windows: Windows, value: Float[np.ndarray, " event"]) -> sparse.csr_array:
    """A value of each event, windows by instants of the period and places."""
    n_places = len(windows.places)
    point = windows.phase.astype(np.int64) * n_places + windows.place
    shape = (windows.n_windows, windows.time_grid.n_instants * n_places)
    return sparse.csr_array((value, (windows.window, point)), shape=shape)


def _log_sum_of_exponentials(matrix: sparse.csr_array, n_columns: int) -> Float[np.ndarray, " row"]:
    """Over each row, with entries that are not stored as zeros; stored ones are positive."""
    n_stored = np.diff(matrix.indptr)
    row = np.repeat(np.arange(len(n_stored)), n_stored)
    greatest = np.zeros(len(n_stored))
    np.maximum.at(greatest, row, matrix.data)
    total = np.bincount(row, np.exp(matrix.data - greatest[row]), minlength=len(n_stored))
    return greatest + np.log(total + (n_columns - n_stored) * np.exp(-greatest))
