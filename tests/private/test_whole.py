"""A fit sees nothing of the data but noisy sums, and all that is saved of it follows from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ppmtf_jax import fit, synthesize
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.noise.mechanisms import SecureNoise
from ppmtf_jax.private import people
from ppmtf_jax.private.people import fit_people
from ppmtf_jax.private.releases import RELATION, Releases, release
from ppmtf_jax.synthesizers.systems import private
from tests.private.worlds import DELTA, EPSILON, city, domain_of, without

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
def test_constant_noise_hides_everything(tmp_path, monkeypatch):
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
