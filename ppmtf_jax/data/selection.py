"""Which users, traces or events are selected, checked before they are taken: NumPy would take index -1 for the last."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.errors import InputError, Problem


def chosen_users(indices: np.ndarray, n_users: int) -> np.ndarray:
    """Whether each user is chosen, shape (users,), from their indices or from one boolean per user."""
    indices = np.asarray(indices)
    if indices.dtype == bool:
        fits = indices.shape == (n_users,)
    else:
        is_list = indices.ndim == 1 and np.issubdtype(indices.dtype, np.integer)
        fits = is_list and not ((indices < 0) | (indices >= n_users)).any()
    if not fits:
        expected = f"indices from 0 to {n_users - 1}, or {n_users} booleans, one a user"
        raise InputError("users to keep", [Problem(expected, f"{indices.dtype} array of shape {indices.shape}")])
    chosen = np.zeros(n_users, bool)
    chosen[indices] = True
    if not chosen.any():
        raise InputError("users to keep", [Problem("at least one user to keep", "none")])
    return chosen


def checked_mask(keep: np.ndarray, n: int, what: str) -> np.ndarray:
    """The booleans `keep`, one for each of `n` traces or events (`what`); anything else is an `InputError`."""
    keep = np.asarray(keep)
    if keep.dtype != bool or keep.shape != (n,):
        found = f"{keep.dtype} array of shape {keep.shape}"
        way_out = f"Make a mask of indices with np.isin(np.arange(n_{what}), indices)"
        one_each = f"{n} booleans, one {'an' if what == 'events' else 'a'} {what[:-1]}"
        raise InputError(f"{what} to keep", [Problem(one_each, found, way_out=way_out)])
    return keep


def renumbered(chosen: np.ndarray, pairs: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """New number of each chosen user, and the friendships among them; `chosen`: a boolean for each user."""
    number = np.cumsum(chosen, dtype=np.int32) - np.int32(1)
    return number, None if pairs is None else number[pairs[chosen[pairs].all(axis=1)]]
