"""Densities of traces under a model learned from other traces, per event.

"chain": one Markov chain for all users, with a transition matrix for each slot. It is smoothed towards the chain of all
slots, which is smoothed towards the visits (nested Dirichlet priors). Its cost is linear in the number of events.
"kernel": a mixture with one component for each model trace; with a small probability, each event moves to a random
place visited in its slot (kernel of Aitchison and Aitken 1976). The kernel compares whole traces, not only steps. Its
cost is the product of both numbers of traces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.attacks.scoring import events_by_point, products_in_blocks
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.errors import InputError, Problem

Density = Literal["chain", "kernel"]
CONCENTRATION = 1e-3
"""Weight of a prior, in events. Small, because steps absent from the synthetic data are the strongest evidence."""
STRAY_PROBABILITY = 0.01


def windows_of(**trace_sets: Traces) -> list[Windows]:
    """Cut trace sets on the same places into periods, such as days; errors call the sets by their keyword names."""
    check_same_places(**trace_sets)
    first_name, first = next(iter(trace_sets.items()))
    differ = [name for name, each in trace_sets.items() if not same_period(first.time_grid, each.time_grid)]
    if differ:
        expected = f"grids whose periods have the same instants and slots as that of {first_name}"
        raise InputError("trace sets", [Problem(expected, f"others in {', '.join(differ)}")])
    return [Windows.of(each) for each in trace_sets.values()]


def joined(windows: Windows, others: Windows) -> Windows:
    """Join the windows of two sets; users of the two sets stay different users."""
    shift = {"window": windows.n_windows, "user": windows.user.max() + 1}
    columns = ("window", "phase", "place", "user")
    values = {name: (getattr(windows, name), getattr(others, name) + shift.get(name, 0)) for name in columns}
    return replace(windows, **{name: np.concatenate(pair) for name, pair in values.items()})


def log_density_per_event(
    windows: Windows, model: Windows, density: Density = "chain", *, concentration: float = CONCENTRATION
) -> Float[np.ndarray, " user"]:
    """Log-density of each user's windows under a model of other windows, per event of the user.

    Each user has at least one window. `concentration` is the weight of each prior of the chain, in events.
    """
    of_window = DENSITIES[density](windows, model, concentration)
    return np.bincount(windows.user, of_window) / np.bincount(windows.user, windows.events_per_window())


def _events(windows: Windows) -> dict[str, np.ndarray]:
    """Slot, place and previous place of events; `is_step`: whether the previous event is one instant earlier."""
    place = windows.place.astype(np.int64)
    slot = windows.time_grid.slot_of_instant[windows.phase].astype(np.int64)
    return {"slot": slot, "previous": np.append(0, place[:-1]), "place": place, "is_step": windows.is_step()}


def _chain(windows: Windows, model: Windows, concentration: float) -> Float[np.ndarray, " window"]:
    n_places, wanted, known = len(windows.places), _events(windows), _events(model)
    steps = {name: column[known["is_step"]] for name, column in known.items()}
    of_place = _shares(known, wanted, [], 1 / n_places, n_places, concentration)
    of_slot = _shares(known, wanted, ["slot"], of_place, n_places, concentration)
    of_step = _shares(steps, wanted, ["previous"], of_place, n_places, concentration)
    of_step = _shares(steps, wanted, ["slot", "previous"], of_step, n_places, concentration)
    probability = np.where(wanted["is_step"], of_step, of_slot)
    return np.bincount(windows.window, np.log(probability), minlength=windows.n_windows)


def _kernel(windows: Windows, model: Windows, concentration: float) -> Float[np.ndarray, " window"]:
    del concentration
    n_places, wanted, known = len(windows.places), _events(windows), _events(model)
    of_slot = _shares(known, wanted, ["slot"], 1 / n_places, n_places, 1.0)
    stray = STRAY_PROBABILITY * of_slot
    gain = np.log(1 - STRAY_PROBABILITY + stray) - np.log(stray)
    strays = np.bincount(windows.window, np.log(stray), minlength=windows.n_windows)
    gains = events_by_point(windows, gain)
    same = events_by_point(model).T.tocsr()
    log_sum = np.empty(windows.n_windows)
    for rows, product in products_in_blocks(gains, same):
        log_sum[rows] = _log_sum_of_exponentials(product, model.n_windows)
    return strays + log_sum - np.log(model.n_windows)


DENSITIES: dict[str, Callable[[Windows, Windows, float], np.ndarray]] = {"chain": _chain, "kernel": _kernel}


def _shares(
    known: dict[str, np.ndarray],
    wanted: dict[str, np.ndarray],
    context: list[str],
    prior: np.ndarray | float,
    n_places: int,
    concentration: float,
) -> Float[np.ndarray, " event"]:
    """Probability of each wanted place in its context, such as its slot: counts with a Dirichlet prior."""

    def count(columns: list[str]) -> np.ndarray:
        """For each wanted event, the number of known events with the same values in some columns."""
        code, asked = (np.zeros(len(each["place"]), np.int64) for each in (known, wanted))
        for name in columns:
            code, asked = code * n_places + known[name], asked * n_places + wanted[name]
        return count_of(code, asked)

    return (count([*context, "place"]) + concentration * prior) / (count(context) + concentration)


def count_of(codes: Int[np.ndarray, " known"], wanted: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
    """How many of the known codes equal each wanted code."""
    codes = np.sort(codes)
    return np.searchsorted(codes, wanted, side="right") - np.searchsorted(codes, wanted)


def _log_sum_of_exponentials(matrix: sparse.csr_array, n_columns: int) -> Float[np.ndarray, " row"]:
    """Log-sum-exp of each row. Stored entries are positive, all others 0."""
    n_stored = np.diff(matrix.indptr)
    row = np.repeat(np.arange(len(n_stored)), n_stored)
    greatest = np.zeros(len(n_stored))
    np.maximum.at(greatest, row, matrix.data)
    total = np.bincount(row, np.exp(matrix.data - greatest[row]), minlength=len(n_stored))
    return greatest + np.log(total + (n_columns - n_stored) * np.exp(-greatest))
