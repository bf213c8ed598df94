"""Planted bugs of releases, each of which breaks the proof: tests must expose them."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.private import releases as releases_module
from ppmtf_jax.private.releases import SCALE, rows


def not_normalized(patch: pytest.MonkeyPatch) -> None:
    def add_up(counted, n_cells):
        return SCALE * np.bincount(counted.group, minlength=n_cells)

    patch.setattr(releases_module, "vector_sum", add_up)


def normalized_per_day(patch: pytest.MonkeyPatch) -> None:
    def per_day(traces, domain):
        for name, counted in rows(traces, domain):
            is_of_events = len(counted.user) == traces.n_events
            yield name, counted._replace(user=traces.periods().piece) if is_of_events else counted

    patch.setattr(releases_module, "rows", per_day)


def of_noise(patch: pytest.MonkeyPatch, part: float) -> None:
    """Noise for a smaller change of sums than users make."""
    add = ZCDPAccountant.add_gaussian

    def too_little(accountant, values, sensitivity, rho, mechanism):
        return add(accountant, values, round(part * sensitivity), rho, mechanism)

    patch.setattr(ZCDPAccountant, "add_gaussian", too_little)


def less_noise(patch: pytest.MonkeyPatch) -> None:
    of_noise(patch, 1 / np.sqrt(2))


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    of_noise(patch, 1 / 2)


def drawn_in_the_order_of_users(patch: pytest.MonkeyPatch) -> None:
    """A tenth of the rows are left out, drawn from one stream: a user's id decides what others' draws are."""

    def drawn(traces, domain):
        for name, counted in rows(traces, domain):
            kept = np.random.default_rng(0).random(len(counted.user)) < 0.9
            yield name, counted._replace(user=counted.user[kept], group=counted.group[kept])

    patch.setattr(releases_module, "rows", drawn)


BUGS = [not_normalized, normalized_per_day, less_noise, half_the_noise, drawn_in_the_order_of_users]
