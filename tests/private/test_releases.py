"""The proof by brute force: no neighbour changes the releases by more than the noise covers; planted bugs fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from ppmtf_jax import fit, synthesize
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import ZCDPAccountant, rho_of
from ppmtf_jax.noise.mechanisms import SecureNoise, SeededNoise
from ppmtf_jax.private import people
from ppmtf_jax.private import releases as releases_module
from ppmtf_jax.private.people import fit_people
from ppmtf_jax.private.releases import (
    DENSITY,
    DENSITY_SHARE,
    RELATION,
    SCALE,
    Releases,
    density,
    has_dense_users,
    release,
    shares,
)
from ppmtf_jax.synthesizers.systems import private
from tests.noise.sources import Recorded
from tests.private.worlds import BUGS, DELTA, EPSILON, KINDS, city, domain_of, sums_of, with_user, without

LIMIT = np.sqrt(2 * rho_of(EPSILON, DELTA))


def mu(one: Traces, other: Traces, *, anchored: bool = False) -> float:
    """Length of the change of all releases together, each in standard deviations of its noise."""
    domain = domain_of(one, anchored=anchored)
    before, after = sums_of(one, domain), sums_of(other, domain)
    changes = [np.linalg.norm(before[name].value - after[name].value) / before[name].sigma for name in before]
    return float(np.linalg.norm(changes))


def neighbours(traces: Traces) -> Iterator[tuple[Traces, Traces]]:
    """Pairs of neighbours: random users left out, the last but one of two users, and planted worst users added."""
    rng = np.random.default_rng(0)
    for user in rng.choice(traces.n_users, 8, replace=False).tolist():
        yield traces, without(traces, user)
    alone = traces.select_users(np.array([3]))
    yield alone, without(alone, 0)
    every = np.arange(traces.time_grid.n_instants)
    n = traces.n_places
    for first in (False, True):
        yield traces, with_user(traces, every, every % 2 * (n - 1), first=first)  # commutes at every instant
        yield traces, with_user(traces, every, 0 * every, first=first)  # never moves
        yield traces, with_user(traces, every, every % n, first=first)  # never returns on a day
        yield traces, with_user(traces, every, rng.integers(0, n, len(every)), first=first)
        yield traces, with_user(traces, every[5:6], np.array([n - 1]), first=first)  # has one event
        yield traces, with_user(traces, every, np.where(every % 24 < 12, 2, 9), first=first)


def worst(traces: Traces, **options) -> float:
    """The largest change of all neighbours, divided by what the budget allows."""
    return max(mu(*pair, **options) for pair in neighbours(traces)) / LIMIT


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_neighbour_costs_more_than_the_budget_and_the_worst_nearly_that(kind, anchored):
    assert 0.95 < worst(city(kind), anchored=anchored) <= 1


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_cost_more_than_the_budget(monkeypatch, bug):
    bug(monkeypatch)
    assert worst(city("both")) > 1.05


def test_shares_over_1_are_refused_and_would_cost_more(monkeypatch):
    traces = city("both")
    domain = domain_of(traces)
    plan = {name: share * Fraction(21, 20) for name, share in shares(domain).items()}
    monkeypatch.setattr(releases_module, "shares", lambda _: plan)
    with pytest.raises(InputError, match=r"at most the rho of .* that is left"):
        sums_of(traces, domain)
    monkeypatch.setattr(ZCDPAccountant, "remaining", property(lambda accountant: accountant.budget))
    commuter = np.arange(traces.time_grid.n_instants)
    assert mu(traces, with_user(traces, commuter, commuter % 2)) > LIMIT


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_shares_add_up_to_the_whole_budget(kind, anchored):
    traces = city(kind)
    domain = domain_of(traces, anchored=anchored)
    assert sum(shares(domain).values()) == 1
    accountant = ZCDPAccountant(RELATION, EPSILON, DELTA)
    made = release(traces, domain, accountant)
    assert accountant.remaining.rho == 0
    (own,) = json.loads(json.dumps(made.ledger))["relations"]
    assert own["spent"] == own["budget"]
    assert (own["spent"]["epsilon"], own["spent"]["delta"]) == (EPSILON, DELTA)
    assert [line["mechanism"] for line in own["mechanisms"]] == list(shares(domain)) == list(made.sums)


def test_the_noise_of_a_release_is_that_of_its_share():
    """The standard deviation over all numbers of all releases, in units of what each release says."""
    traces = city("both")
    domain = domain_of(traces)
    exact = sums_of(traces, domain)
    made = release(traces, domain, ZCDPAccountant(RELATION, EPSILON, DELTA))
    errors = [(made[name].value - exact[name].value / SCALE).ravel() / made[name].sigma for name in exact]
    for name, share in shares(domain).items():
        sigma = 1 / np.sqrt(2 * share * rho_of(EPSILON, DELTA))
        assert made[name].sigma == pytest.approx(sigma) == pytest.approx(exact[name].sigma / SCALE)
    together = np.concatenate(errors)
    # The noise of two releases has nothing in common: the mean of n products has a standard error of 1 / sqrt(n).
    for one, other in combinations(errors, 2):
        n = min(len(one), len(other))
        assert abs(np.mean(one[:n] * other[:n])) < 6 / np.sqrt(n)
    # The variance of n normal numbers has a standard error of sqrt(2 / n); six of those.
    assert abs(np.mean(together**2) - 1) < 6 * np.sqrt(2 / len(together))
    assert abs(np.mean(together)) < 6 / np.sqrt(len(together))


def test_only_events_count(monkeypatch):
    """Neither ids, nor the number of users without events, nor the blocks of users change anything."""
    traces = city("both")
    domain = domain_of(traces)
    expected = sums_of(traces, domain)
    renamed = replace(traces, user_ids=np.array([f"user {i:03}" for i in range(traces.n_users)], object))
    silent = replace(traces, user_ids=np.append(traces.user_ids, 10**6))
    for other in (renamed, silent):
        np.testing.assert_equal(sums_of(other, domain), expected)
    monkeypatch.setattr("ppmtf_jax.data.traces.BLOCK_USERS", 2)
    in_blocks = replace(traces)
    assert len(list(in_blocks.blocks)) > 10
    np.testing.assert_equal(sums_of(in_blocks, domain), expected)


def test_seeded_noise_says_not_private():
    traces = city("both")
    domain = domain_of(traces)
    first, second = (release(traces, domain, ZCDPAccountant(RELATION, 1, 1e-6, SeededNoise(4))) for _ in range(2))
    np.testing.assert_equal(first.sums, second.sums)
    assert first.ledger["private"] is False
    assert "NOT PRIVATE" in repr(first)
    private = release(traces, domain, ZCDPAccountant(RELATION, 1, 1e-6))
    assert repr(private).startswith("Releases: epsilon 1 and delta 1e-06, if one user with all their traces is added")


def test_whether_users_are_dense_is_decided_by_noisy_numbers():
    """And without any cost if the grid, which is public, is too short."""
    traces = city("both")
    for noisy, expected in (([5, 4], False), ([4, 5], True)):
        noise = Recorded(np.array(noisy), is_private=True)
        accountant = ZCDPAccountant(RELATION, EPSILON, DELTA, noise)
        assert has_dense_users(traces, accountant) == expected
        (draw,) = noise.asked
        n_dense = int((density(traces).group == 1).sum())
        assert draw.values.tolist() == [1024 * (traces.n_users - n_dense), 1024 * n_dense]
        assert accountant.spent.rho == DENSITY_SHARE * accountant.budget.rho
        assert accountant.spendings[0].mechanism == DENSITY
    short = replace(traces, time_grid=replace(traces.time_grid, period=48))
    accountant = ZCDPAccountant(RELATION, EPSILON, DELTA)
    assert not has_dense_users(short, accountant)
    assert accountant.spendings == []


def test_constant_noise_hides_everything():
    """With the same noisy numbers, the releases of other people, and of another number of them, are the same."""

    class Constant(Recorded):
        def add_gaussian(self, values, sensitivity, rho):
            return np.full(values.shape, 7)

    traces = city("both")
    domain = domain_of(traces)
    for other in (traces, traces.select_users(np.arange(2)), without(traces.select_users(np.array([3])), 0)):
        made = release(other, domain, ZCDPAccountant(RELATION, 1, 1e-6, Constant(is_private=True)))
        assert made.domain is domain
        assert made.ledger == release(traces, domain, ZCDPAccountant(RELATION, 1, 1e-6)).ledger
        assert all((value == 7).all() for value in made.sums.values())


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_saved_releases_are_the_same(tmp_path, kind, anchored):
    traces = city(kind)
    domain = domain_of(traces, anchored=anchored)
    made = release(traces, domain, ZCDPAccountant(RELATION, "1/3", 1e-6))
    made.save(tmp_path / "releases")
    loaded = Releases.load(tmp_path / "releases")
    assert (loaded.ledger, loaded.domain.time_grid) == (made.ledger, domain.time_grid)
    assert list(loaded.sums) == list(made.sums)
    np.testing.assert_equal(loaded.sums, made.sums)
    for name, table in domain.population_tables().items():
        np.testing.assert_equal(loaded.domain.population_tables()[name], table)
    np.testing.assert_array_equal(loaded.domain.distance_bin, domain.distance_bin)
    assert all(loaded[name].sigma == made[name].sigma for name in made.sums)
    with pytest.raises(InputError, match="free"):
        made.save(tmp_path / "releases")
    (tmp_path / "releases" / "ledger.json").write_text("{}")
    with pytest.raises(InputError, match=r"ledger\.json changed"):
        Releases.load(tmp_path / "releases")


# A fit sees nothing of the data but noisy sums, and all that is saved of it follows from them

FEW_PEOPLE = 100


@pytest.fixture
def constant_noise(monkeypatch):
    """Noisy numbers that do not depend on the data, and few people to calibrate with."""

    def any_numbers(noise, values, sensitivity, rho):
        return np.random.default_rng(values.size).integers(0, 20 * 1024, values.shape)

    monkeypatch.setattr(SecureNoise, "add_gaussian", any_numbers)
    monkeypatch.setattr(people, "N_PEOPLE", FEW_PEOPLE)


def files_of(traces: Traces, folder: Path) -> dict[str, bytes]:
    """Everything that is saved of a model and of its traces."""
    model = fit(traces, "private", {"public_places": True, "anchors": "coupled"}, seed=5)
    model.save(folder / "model")
    synthesize(model, seed=1, people=5).save(folder / "traces")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures("constant_noise")
def test_constant_noise_hides_everything_of_a_model_and_its_traces(tmp_path, monkeypatch):
    """Nothing but noisy numbers flows from the data to a model and its traces: not the users, nor their number."""
    traces = city("both")
    found = files_of(traces, tmp_path / "first")
    assert len(found) == 10
    nobody = without(traces.select_users(np.array([3])), 0)
    for number, other in enumerate((traces.select_users(np.arange(2)), nobody)):
        assert files_of(other, tmp_path / str(number)) == found

    def with_number_of_users(traces, domain, accountant):
        made = release(traces, domain, accountant)
        made.sums["place"][0, 0] += 20 * 1024 * traces.n_users
        return made

    monkeypatch.setattr(private, "release", with_number_of_users)  # planted
    assert files_of(nobody, tmp_path / "nobody") == found
    assert files_of(traces, tmp_path / "planted") != found


IN_A_PROCESS = """
import sys
import numpy as np
from ppmtf_jax.private import people
from ppmtf_jax.private.releases import Releases
people.N_PEOPLE = int(sys.argv[3])
np.savez(sys.argv[2], **people.fit_people(Releases.load(sys.argv[1]), 0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("anchored", [False, True])
def test_a_process_that_never_saw_the_data_fits_the_same_people(tmp_path, monkeypatch, anchored):
    """It has only the files of the releases; all parameters are the same, bit by bit."""
    traces = city("both")
    made = release(traces, domain_of(traces, anchored=anchored), ZCDPAccountant(RELATION, EPSILON, DELTA))
    made.save(tmp_path / "releases")
    command = [sys.executable, "-c", IN_A_PROCESS, "releases", "people.npz", str(FEW_PEOPLE)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    monkeypatch.setattr(people, "N_PEOPLE", FEW_PEOPLE)
    with np.load(tmp_path / "people.npz") as found:
        for releases in (Releases.load(tmp_path / "releases"), made):
            np.testing.assert_equal(dict(found), fit_people(releases, 0))
