"""Synthesizers along their settings: utility against privacy, and time against users and places.

    python benchmarks/trade_offs.py settings ../shared --folder trade_offs --csv benchmarks/trade_offs.csv
    python benchmarks/trade_offs.py plot ../shared --csv benchmarks/trade_offs.csv --picture trade_offs.png
    python benchmarks/trade_offs.py time --csv benchmarks/synthesizer_time.csv

`settings`: people flow, ten traces per user, before any privacy test, one seed. PPMTF has several noise precisions, SGD
several numbers of copied events, and SGLT several values of remove_true_prob for 50 to 200 clusters of places. The
bridge without memory, TPM and Training have one row each. Rows of the authors' programs are beside these rows. Finished
results are kept in the folder.

`plot`: Fig. 7 of Murakami et al. 2021.

`time`: seconds of a fit and of the synthesis of one trace per user (Fig. 9). Each is measured twice: the first time
includes compilation, the second does not. Each system and size runs in a process of its own. The data are a toy city of
one day without gaps: 400 places with a growing number of users, and 500 users with a growing number of places. In the
end it prints exponents of the second time: the slope of log seconds over log users or log places.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from common import Row, command_line, in_a_process, machine, measured, people_flow, record

from ppmtf_jax import Traces, fit, synthesize
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import EvaluationSettings
from ppmtf_jax.evaluation.plots import save_figure, trade_offs
from ppmtf_jax.jobs.compare import Candidate, CompareSettings, compare_systems

NOISE_PRECISIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 10, 20, 100, 200, 1000)
REMOVED = (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1)
N_CLUSTERS = (50, 100, 150, 200)
# Series of the picture: candidates, and the published settings that correspond to them.
SERIES = {
    "PPMTF": {f"ppmtf noise_precision={each}": ("PPMTF", f"alp{each:g}") for each in NOISE_PRECISIONS},
    "SGD": {f"sgd n_copied={n}": ("SGD", f"cn{n}") for n in range(6)},
} | {
    # As published: the tool lets the lowest-numbered places join, around changes of place.
    f"SGLT, {n} clusters": {
        f"sglt n_clusters={n} joining=published remove_true_prob={each}": ("SGLT", f"c{n}_0.25_0.75_{each:g}_4")
        for each in REMOVED
    }
    for n in N_CLUSTERS
}
SERIES["SGLT, 100 clusters, random joining"] = {
    f"sglt n_clusters=100 remove_true_prob={each}": ("SGLT", "unpublished") for each in REMOVED
}
REFERENCES = {"bridge": "bridge memory=none", "TPM, epsilon 1": "tpm", "Training": "training"}
UTILITY = ("tp_tv", "tp_tv_top50", "tm_emd_y", "tm_emd_x")
PRIVACY = ("reid_rate", "mia_advantage")
COLUMNS = ["series", "candidate", "published", *PRIVACY, *UTILITY, "share_passed", "fit_s", "synthesize_s", "peak_mb"]
TRACES_PER_USER = 10
TIME_COLUMNS = ["system", "along", "users", "places"]
TIME_COLUMNS += [f"{stage}_{what}" for what in ("compiling_s", "seconds") for stage in ("fit", "synthesize")]
TIME_COLUMNS += ["cores", "load"]
TIMED = {"ppmtf": "", "sglt": "n_clusters=25", "bridge": "memory=none", "sgd": ""}
USERS, PLACES = (100, 200, 500, 1000), (100, 200, 400, 1000)


def settings_rows(shared: Path, folder: Path) -> Iterator[Row]:
    """A row for each candidate, and a row for its published numbers."""
    official = shared / "reference" / "people_flow"
    for name, traces in zip(("train", "test"), people_flow(shared), strict=True):
        if not (folder / name).exists():
            folder.mkdir(parents=True, exist_ok=True)
            traces.save(folder / name)
    candidates = [name for series in SERIES.values() for name in series] + list(REFERENCES.values())
    options = CompareSettings(n_seeds=1, traces_per_user=TRACES_PER_USER)
    found = compare_systems(folder / "train", folder / "test", folder / "compared", candidates, options, say=print)
    mean, published = found.mean(), published_rows(official)
    named = {candidate: name for (name, _), candidate in zip(found.cells, candidates, strict=True)}

    def measured(candidate: str) -> Row:
        return {name: round(mean.value(name, named[candidate]), 4) for name in COLUMNS[3:]}

    for series, of_series in SERIES.items():
        for candidate, key in of_series.items():
            yield {"series": series, "candidate": candidate, "published": False} | measured(candidate)
            if key in published:
                yield {"series": series, "candidate": candidate, "published": True} | published[key]
    for series, candidate in REFERENCES.items():
        yield {"series": series, "candidate": candidate, "published": False} | measured(candidate)


def published_rows(official: Path) -> dict[tuple[str, str], Row]:
    """What the authors' programs printed, by system and setting."""
    table = pd.read_csv(official / "published_results.csv").set_index(["system", "setting"])
    return {key: {name: row[name] for name in (*PRIVACY, *UTILITY)} for key, row in table.iterrows()}  # type: ignore[misc]


def draw(csv: Path, picture: Path) -> None:
    table, quantities = pd.read_csv(csv), EvaluationSettings().quantities()

    def points(published: bool) -> dict[str, dict[str, list[float]]]:
        rows = table[(table["published"] == published) & ~table["series"].isin(REFERENCES)]
        groups = rows.groupby("series", sort=False)
        return {name: {each: of[each].tolist() for each in (*UTILITY, *PRIVACY)} for name, of in groups}

    single = table[table["series"].isin(REFERENCES)].set_index("series")
    figure = trade_offs(
        points(False),
        [quantities[name] for name in UTILITY],
        [quantities[name] for name in PRIVACY],
        published=points(True),
        references={name: row.to_dict() for name, row in single[[*UTILITY, *PRIVACY]].iterrows()},
    )
    save_figure(figure, picture)


def time_rows() -> Iterator[Row]:
    for system, settings in TIMED.items():
        for along, sizes in (("users", [(n, 400) for n in USERS]), ("places", [(500, n) for n in PLACES])):
            rows = [in_a_process(timed, system, settings, *size) for size in sizes]
            yield from ({"system": system, "along": along} | row for row in rows)
            x = np.log([row[along] for row in rows])
            for stage in ("fit_seconds", "synthesize_seconds"):
                slope = np.polyfit(x, np.log([row[stage] for row in rows]), 1)[0]
                print(f"{system}: {stage} grows with {along} to the power {slope:.2f}")


def timed(system: str, settings: str, n_users: int, n_places: int) -> Row:
    traces: Traces = toy_city(n_users=n_users, n_places=n_places, n_days=1, missing=0.0, seed=0).traces
    chosen, row = Candidate.parse(f"{system} {settings}").settings, {"users": n_users, "places": n_places}
    # The first call includes compilation.
    for name in ("compiling_s", "seconds"):
        model, fitting = measured(fit, traces, system, chosen, seed=0)
        synthesizing = measured(synthesize, model, seed=0)[1]
        row |= {f"fit_{name}": fitting["seconds"], f"synthesize_{name}": synthesizing["seconds"]}
    return row | machine()


def main() -> None:
    parser = command_line(__doc__, sections=("settings", "plot", "time"), shared=True)
    parser.add_argument("--folder", type=Path, default=Path("trade_offs"), help="for what is finished")
    parser.add_argument("--picture", type=Path, help="file to draw into")
    arguments = parser.parse_args()
    if arguments.section == "plot":
        draw(arguments.csv, arguments.picture)
        return
    if arguments.section == "settings":
        rows, columns = settings_rows(arguments.shared, arguments.folder), COLUMNS
    else:
        rows, columns = time_rows(), TIME_COLUMNS
    record(rows, arguments.csv, columns, append=True)


if __name__ == "__main__":
    main()
