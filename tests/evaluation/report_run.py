"""A small job of which a report is made, on users with ids and a seed that can be looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import plots
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.jobs.runner import run
from ppmtf_jax.people import selection

SEED = 918273645546372819
USER = "quagga-{:03d}"
N_USERS = 70


def no_pictures(folder: Path, **_: Any) -> None:
    """Stands in for the pictures of a job, which have tests of their own."""
    (Path(folder) / "none.png").write_bytes(b"")


def run_small_job(folder: Path, **tables: Any) -> Path:
    """Do all steps on check-ins of a small toy city; gives the folder of the job."""
    traces = toy_city(n_users=N_USERS, n_places=20, n_days=2, missing=0.1, seed=1).traces
    grid, places = traces.time_grid, traces.places
    checkins = pd.DataFrame(
        {
            "user": [USER.format(user) for user in traces.user.tolist()],
            "time": [grid.time_of(instant).isoformat() for instant in traces.instant.tolist()],
            "latitude": places.latitude[traces.place],
            "longitude": places.longitude[traces.place],
            "place": places.ids[traces.place],
            "category": places.category[traces.place],
        }
    )
    checkins.to_csv(folder / "checkins.csv", index=False)
    content = {
        "seed": SEED,
        "import": {"source": "checkins", "path": "checkins.csv", "time_zone": "UTC", "n_places": 20},
        "fit": {"n_clusters": 2, "min_cluster_users": 6, "memory": "none"},
        "test": {"k": 5, "count_all": True},
        "release": {"min_users_per_place": 1},
    }
    config = JobConfig.from_mapping(content | tables, folder, default_out="job", subject="report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save_pictures", no_pictures)
        # A report does not depend on how well the smoothing is chosen, which took a third of the time of the job.
        patch.setattr(selection, "N_FOLDS", 2)
        patch.setattr(selection, "N_SWEEPS", 2)
        run(config)
    return folder / "job"
