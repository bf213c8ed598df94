"""Synthesizers along their settings: utility against privacy.

    python benchmarks/trade_offs.py ../shared --folder trade_offs --csv benchmarks/trade_offs.csv

People flow, ten traces per user, before any privacy test, one seed. PPMTF has several noise precisions, SGD several
numbers of copied events, and SGLT several values of remove_true_prob for 50 to 200 clusters of places. The bridge
without memory, TPM and Training have one row each. Rows of the authors' programs are beside these rows. Finished
results are kept in the folder. `figures.py` draws them: Fig. 7 of Murakami et al. 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from common import Row, command_line, people_flow, record

from ppmtf_jax.jobs.compare import CompareSettings, compare_systems

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


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--folder", type=Path, default=Path("trade_offs"), help="for what is finished")
    arguments = parser.parse_args()
    record(settings_rows(arguments.shared, arguments.folder), arguments.csv, COLUMNS, append=True)


if __name__ == "__main__":
    main()
