"""Planted bugs of releases, each of which breaks the proof: tests must expose them."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.private import releases as releases_module
from ppmtf_jax.private.summaries import SCALE, rows


def not_normalized(patch: pytest.MonkeyPatch) -> None:
    def add_up(counted, n_cells):
        return SCALE * np.bincount(counted.cell, minlength=n_cells)

    patch.setattr(releases_module, "vector_sum", add_up)


def normalized_per_day(patch: pytest.MonkeyPatch) -> None:
    def per_day(traces, domain):
        for name, counted in rows(traces, domain):
            is_of_events = len(counted.user) == traces.n_events
            yield name, counted._replace(user=traces.periods().piece) if is_of_events else counted

    patch.setattr(releases_module, "rows", per_day)


def less_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(releases_module, "SCALE", round(SCALE / np.sqrt(2)))


def drawn_in_the_order_of_users(patch: pytest.MonkeyPatch) -> None:
    """A tenth of the rows are left out, drawn from one stream: a user's id decides what others' draws are."""

    def drawn(traces, domain):
        for name, counted in rows(traces, domain):
            kept = np.random.default_rng(0).random(len(counted.user)) < 0.9
            yield name, counted._replace(user=counted.user[kept], cell=counted.cell[kept])

    patch.setattr(releases_module, "rows", drawn)


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(releases_module, "SCALE", SCALE // 2)


BUGS = [not_normalized, normalized_per_day, less_noise, half_the_noise, drawn_in_the_order_of_users]
