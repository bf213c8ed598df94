"""What the tests of several commands share: a folder with a small city and all that is made from it."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import jax.numpy as jnp
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from tests.commands import works


def factorized_model(train: Traces) -> FittedModel:
    """A model of ppmtf that nothing was fitted for: any factors will do."""
    sizes = (train.n_users, train.n_places, train.n_places, train.n_users, train.n_places, train.time_grid.n_slots)
    grid = train.time_grid.one_period()
    factors = [jnp.ones((n, 2)) for n in sizes]
    chains = MetropolisHastings(*factors, jnp.asarray(grid.slot_of_instant))
    settings = PPMTFSettings(rank=2, n_sweeps=20, zeros="weighted", n_zeros=50)
    return FittedModel("ppmtf", asdict(settings), 0, train.user_ids, train.places, grid, chains)


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A folder in which the commands were called once. Tests leave it as it is."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        works("import", "toy-city", "--users", 40, "--places", 12, "--days", 1, "--seed", 0, "--out", "city")
        works("fit", "city/train", "--system", "uniform", "--out", "model")
        factorized_model(Traces.load("city/train")).save("factorized")
        works("synthesize", "model", "--traces-per-user", 2, "--out", "synthetic")
        works("test", "model", "synthetic", "--k", 2, "--out", "verdicts")
        works("release", "synthetic", "verdicts", "--out", "released", "--key", "key", "--min-users-per-place", 1)
        shutil.copytree("city/train", "other/train")
        grid = json.loads(Path("other/train/time_grid.json").read_text())
        Path("other/train/time_grid.json").write_text(json.dumps(grid | {"start": "2001-01-01T00:00:00"}))
        Path("empty").mkdir()
        Path("note.txt").write_text("mine")
    return folder
