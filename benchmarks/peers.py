"""Published models of persons, as scikit-mobility has them: density-EPR and DITRAS.

scikit-mobility needs older libraries than this package, so it runs in an environment of its own:

    python3 -m venv ~/skmob && ~/skmob/bin/pip install scikit-mobility==1.3.1 "numpy<2" "scipy<1.12" "shapely<2.1"
    export SKMOB_PYTHON=~/skmob/bin/python

`peer_traces` writes the input of the models into a folder, runs this file with that Python, and reads the result. The
models have their published parameters. From the training data, they learn how often each place was visited. DITRAS also
learns a diary (when people are at home, and how long they are elsewhere) from at most `MAX_DIARIES` people. A
synthetic person begins at midnight of the first day, at a place drawn in proportion to its visits.

- Density-EPR: Song et al. (2010), Modelling the scaling properties of human mobility, Nature Physics 6; Pappalardo et
  al. (2015), Returners and explorers dichotomy in human mobility, Nature Communications 6.
- DITRAS: Pappalardo and Simini (2018), Data-driven generation of spatio-temporal routines in human mobility, Data
  Mining and Knowledge Discovery 32.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from ppmtf_jax import Traces

PEERS = ("density-EPR", "DITRAS")
PYTHON = "SKMOB_PYTHON"
"""Environment variable with the Python of scikit-mobility."""
MAX_DIARIES = 200


def peer_traces(train: Traces, peer: str, n_people: int, n_instants: int, seed: int) -> Traces:
    """Complete traces of `n_people` synthetic people, from the first midnight of the grid on."""
    from ppmtf_jax import Traces
    from ppmtf_jax.data.time_grid import TimeGrid

    grid, places = train.time_grid, train.places
    if not os.environ.get(PYTHON):
        raise SystemExit(f"{peer}: {PYTHON} does not name the Python of scikit-mobility, see benchmarks/peers.py")
    covered = TimeGrid(grid.start, grid.step_s, grid.slot_of_instant[:n_instants], grid.time_zone, period=grid.period)
    since_midnight_s = covered.since_midnight_s()
    job = {"peer": peer, "people": n_people, "seconds": int(since_midnight_s[-1]) + grid.step_s, "seed": seed}
    visits = np.bincount(train.place, minlength=len(places))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job | {"day": grid.start[:10]}))
        table = {"latitude": places.latitude, "longitude": places.longitude, "relevance": visits}
        pd.DataFrame(table).to_csv(folder / "places.csv", index=False)
        if peer == "DITRAS":
            some = train.select_users(np.random.default_rng(seed).permutation(train.n_users)[:MAX_DIARIES])
            time = grid.time_of(0) + pd.to_timedelta(some.instant.astype(np.int64) * grid.step_s, unit="s")
            diaries = {"uid": some.user, "datetime": time, "place": some.place, "lat": 0.0, "lng": 0.0}
            pd.DataFrame(diaries).to_csv(folder / "visits.csv", index=False)
        command = [os.environ[PYTHON], "-W", "ignore", __file__, name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{peer}: {done.stderr}")
        moves = pd.read_csv(folder / "moves.csv")
    # The last move of a person up to each instant.
    far = 2 * job["seconds"]
    wanted = np.arange(n_people)[:, None] * far + since_midnight_s
    found = np.searchsorted(moves["person"].to_numpy() * far + moves["second"].to_numpy(), wanted, side="right") - 1
    person, instant = np.divmod(np.arange(n_people * n_instants, dtype=np.int32), np.int32(n_instants))
    place = moves["place"].to_numpy(np.int32)[found].ravel()
    return Traces(person, np.zeros_like(person), instant, place, np.arange(n_people), places, covered, of_nobody=True)


def simulate(folder: Path) -> None:
    """Simulate people with scikit-mobility: what its own Python does."""
    import geopandas
    import skmob
    from skmob.models.epr import DensityEPR, Ditras
    from skmob.models.markov_diary_generator import MarkovDiaryGenerator

    job = json.loads((folder / "job.json").read_text())
    places = pd.read_csv(folder / "places.csv")
    rng = np.random.default_rng(job["seed"])
    if job["peer"] == "DITRAS":
        visits = skmob.TrajDataFrame(pd.read_csv(folder / "visits.csv"), user_id="uid", datetime="datetime")
        diary = MarkovDiaryGenerator()
        diary.fit(visits, visits["uid"].nunique(), lid="place")
        model = Ditras(diary)
    else:
        model = DensityEPR()
    # Only the list of moves is needed. To make a table of it would take longer than the simulation.
    model._get_trajdataframe = lambda parameters: None
    begin = pd.Timestamp(job["day"])
    share = places["relevance"] / places["relevance"].sum()
    model.generate(
        begin,
        begin + pd.Timedelta(seconds=job["seconds"]),
        geopandas.GeoDataFrame(
            places[["relevance"]], geometry=geopandas.points_from_xy(places["longitude"], places["latitude"])
        ),
        n_agents=job["people"],
        starting_locations=rng.choice(len(places), job["people"], p=share).tolist(),
        random_state=job["seed"],
    )
    moves = pd.DataFrame(model.trajectories_, columns=["person", "time", "place"])
    moves["person"] -= moves["person"].min()
    moves["second"] = (moves["time"] - begin).dt.total_seconds()
    moves = moves.sort_values(["person", "second"], kind="stable")
    moves[["person", "second", "place"]].to_csv(folder / "moves.csv", index=False)


if __name__ == "__main__":
    simulate(Path(sys.argv[1]))
