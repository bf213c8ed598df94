"""The estimate of a fit against measured peaks, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from ppmtf_jax.datasets.places import GridPlaces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.synthesizers.systems.bridge import bytes_to_fit, require_memory_to_fit
from tests.machine import with_gigabytes

# Prints the estimate and how far the process grew, bytes; system calls count kilobytes.
MEASURE = """
import resource, sys
import jax
from ppmtf_jax.synthesizers.systems.bridge import bytes_to_fit
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.synthesizers.systems.bridge import BridgeSettings, fit_trace_model
n_users, n_places, n_clusters = map(int, sys.argv[1:])
train = toy_city(n_users, n_places=n_places, n_days=1, seed=0).traces
jax.devices()
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak counts from now on
fit_trace_model(train, BridgeSettings(n_clusters=n_clusters), 0)
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
print(bytes_to_fit(train, n_clusters), peak - before)
"""


@pytest.fixture(scope="module")
def train():
    return toy_city(1000, n_places=1000, n_days=1, seed=0).traces


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell a peak")
@pytest.mark.parametrize(("users", "places", "n_clusters"), [(300_000, 200, 8), (1000, 10_000, 64)])
def test_estimates_are_within_a_factor_of_two_of_the_peak(users, places, n_clusters):
    command = [sys.executable, "-c", MEASURE, str(users), str(places), str(n_clusters)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    needed, grown = map(int, done.stdout.split())
    assert 0.5 < needed / grown < 2


def test_the_number_of_clusters_that_is_named_fits(monkeypatch, train):
    least = bytes_to_fit(train, 1) / 1e9
    most = bytes_to_fit(train, 64) / 1e9
    with_gigabytes(monkeypatch, most * 1.001)
    require_memory_to_fit(train, None, 10)
    with_gigabytes(monkeypatch, (least + most) / 2)
    with pytest.raises(
        InputError, match=r"fit: expected .* GB of memory \(an estimate\); found .*Set n_clusters=\d+"
    ) as caught:
        require_memory_to_fit(train, None, 10)
    named = int(str(caught.value).split("n_clusters=")[1])
    require_memory_to_fit(train, named, 10)
    with pytest.raises(InputError):
        require_memory_to_fit(train, named + 1, 10)
    # Of so few users there cannot be as many clusters.
    require_memory_to_fit(train, None, train.n_users // named)
    with_gigabytes(monkeypatch, least / 2)
    with pytest.raises(InputError, match="Take fewer users, places or slots"):
        require_memory_to_fit(train, 1, 10)


def test_a_fit_is_refused_before_it_begins(monkeypatch, train):
    jax.devices()  # which reads files of the machine when it is first called
    with_gigabytes(monkeypatch, 0.1)
    monkeypatch.setattr("ppmtf_jax.synthesizers.systems.bridge.space_of", lambda *_: pytest.fail("it began"))
    with pytest.raises(InputError, match=r"fit: expected .* GB of memory \(an estimate\); found 0\.1 GB available"):
        fit(train, "bridge")


@pytest.mark.parametrize("system", ["bridge", "private"])
def test_a_million_places_are_refused_with_what_they_would_take(monkeypatch, train, system):
    """A fit would take hours. At places that need not be public, an import keeps only those that people visit."""
    with_gigabytes(monkeypatch, 1000)
    many = replace(train, places=GridPlaces(35, 36, 139, 140, 1000, 1000).table())
    settings = {"public_places": True} if system == "private" else {}
    with pytest.raises(InputError, match=r"250,000 places.*found 1,000,000.* GB and \d\.\d hours") as caught:
        fit(many, system, **settings)
    assert ("min_users_per_place=2" in str(caught.value)) == (system == "bridge")


def test_the_places_of_private_need_memory(monkeypatch, train):
    jax.devices()
    with_gigabytes(monkeypatch, 1)
    with pytest.raises(InputError, match=r"fit: expected .* GB of memory .*larger cells"):
        fit(train, "private", public_places=True)
