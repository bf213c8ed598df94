"""Digests of what some sixty commands make from given seeds: a net under a rebuilding that should change nothing.

    python benchmarks/net.py record before.json     # with PYTHONPATH at the old code
    python benchmarks/net.py compare before.json    # with the new code: what differs, by name

Contents are compared, not bytes: columns of tables, numbers of JSON, arrays of models, words of pages. Seconds, memory
and digests of other files are left out. Each output also has the mean of its numbers, which shows how large a
difference is. Programs are compiled without most optimizations, which changes the last digits and saves minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ["COLUMNS"] = "120"

import numpy as np
import pandas as pd

SAMPLES = Path(__file__).resolve().parents[1] / "tests" / "samples"
GOWALLA = SAMPLES / "gowalla"
OF_GOWALLA = f"{GOWALLA}/loc-gowalla_totalCheckins.txt --edges {GOWALLA}/loc-gowalla_edges.txt"
STAYS = "--stay-distance 100 --stay-duration 1200 --grid 52.39,52.49,13.29,13.39,5,5"
FEW = "--min-users-per-place 1 --train-fraction 0.5 --seed 1"
COMMANDS = f"""
list
list --markdown
fit --help
run --help
import toy-city --users 120 --places 20 --days 3 --seed 1 --out city
import toy-city --users 60 --places 12 --days 7 --period week --seed 2 --out week
import checkins checkins.csv --time-zone Europe/Berlin --check
import checkins checkins.csv --time-zone Europe/Berlin --seed 1 --out checkins
import checkins checkins.csv --time-zone UTC --grid 52.4,52.6,13.3,13.5,4,4 --step 1800 --seed 1 --out cells
import checkins fixes.csv --time-zone UTC {STAYS} {FEW} --out stays
import foursquare {SAMPLES}/foursquare {FEW} --out foursquare
import gowalla {OF_GOWALLA} {FEW} --time-zone UTC --out gowalla
import geolife {SAMPLES}/geolife {FEW} --out geolife
import foursquare-www {SAMPLES}/foursquare_www --city new-york {FEW} --out foursquare-www
import people-flow {SAMPLES}/people_flow --out people-flow
fit city/train --seed 1 --out bridge
fit city/train --seed 1 --set memory=none --out chains
fit city/train --seed 1 --set memory=places --out returning
fit checkins/train --seed 1 --set min_cluster_users=10 --out gaps
fit week/train --seed 1 --set memory=none --out weekly
fit city/train --system ppmtf --seed 1 --set rank=4 --set n_sweeps=5 --set n_zeros=50 --out ppmtf
fit city/train --system ppmtf --seed 1 --set rank=4 --set n_sweeps=20 --set zeros=weighted --out weighted
fit city/train --system itf --seed 1 --set rank=4 --set n_sweeps=5 --set n_zeros=50 --out itf
fit city/train --system sgd --seed 1 --set n_copied=1 --out sgd
fit city/train --system tpm --seed 1 --set noise=seeded --out tpm
fit city/train --system private --seed 1 --set noise=seeded --set public_places=true --out private
fit city/train --system training --seed 1 --out training
fit city/train --system uniform --seed 1 --out uniform
synthesize bridge --traces-per-user 2 --seed 2 --out by-bridge
synthesize bridge --people 50 --days 5 --start 2025-03-03 --seed 2 --out by-people
synthesize chains --seed 2 --out by-chains
synthesize returning --seed 2 --out by-returning
synthesize gaps --seed 2 --out by-gaps
synthesize weekly --seed 2 --out by-weekly
synthesize ppmtf --seed 2 --out by-ppmtf
synthesize sgd --seed 2 --out by-sgd
synthesize tpm --seed 2 --out by-tpm
synthesize private --people 60 --seed 2 --out by-private
test bridge by-bridge --k 5 --seed 3 --out tested-bridge
test ppmtf by-ppmtf --k 3 --count-all --plot rates.svg --seed 3 --out tested-ppmtf
test sgd by-sgd --k 3 --noise-epsilon 1 --precision float32 --seed 3 --out tested-sgd
release by-bridge tested-bridge --min-users-per-place 1 --seed 4 --out released --key key
release by-bridge tested-bridge --min-users-per-place 1 --keep-users-together --seed 4 --out together --key key-together
release by-private --model private --seed 4 --out published
complete bridge city/train --seed 5 --out most-probable
fit by-bridge --system sglt --seed 1 --set n_clusters=5 --out sglt
synthesize sglt --seed 2 --out by-sglt
test sglt by-sglt --k 3 --seed 3 --out tested-sglt
complete ppmtf city/train --how random --seed 5 --out random
evaluate by-bridge --train city/train --test city/test --verdicts tested-bridge --json bridge.json
evaluate by-gaps --train checkins/train --test checkins/test --no-attacks --json gaps.json
evaluate released --key key --train city/train --test city/test --json released.json
attack reidentify city/train --seed 6 --json reidentified.json
attack reidentify city/train --released by-ppmtf --seed 6 --json reidentified-ppmtf.json
attack membership by-bridge --train city/train --test city/test --fast --seed 6 --json membership.json
attack unicity by-bridge --train city/train --test city/test --seed 6 --json unicity.json
export population released --real city/train --out population.geojson
export traces released --sample 20 --seed 7 --out traces.csv
export traces by-people --out traces.mf.json --format mf-json
diagnose weighted --train city/train --chains 2 --sweeps 20 --seed 8 --out diagnosis
compare city/train city/test --system sgd --system uniform --seeds 1 --out compared
run job.toml
report job --fast --out report.html
"""
JOB = """
seed = 1
[import]
source = "toy-city"
n_users = 100
n_places = 16
n_days = 2
[[compare]]
system = "sgd"
[test]
k = 5
[release]
min_users_per_place = 1
"""


def tables() -> None:
    """Check-ins at 15 places, and fixes of people who stay and go, in files."""
    rng = np.random.default_rng(0)
    n = 60 * 40
    place = (rng.integers(60, size=n) % 4 * 4 + rng.integers(6, size=n)) % 15
    start = pd.Timestamp("2024-03-04T06:00:00Z")
    table = pd.DataFrame({"user": np.repeat(np.arange(60), 40), "place": place})
    table["time"] = start + pd.to_timedelta(rng.integers(14 * 24 * 60, size=n), unit="min")
    table["latitude"], table["longitude"] = 52.41 + place / 100, 13.31 + place % 7 / 50
    table["category"] = np.where(place % 3, "shop", "home")
    table.to_csv("checkins.csv", index=False)
    fixes = pd.DataFrame({"user": np.repeat(np.arange(10), 288), "minute": np.tile(np.arange(288) * 5, 10)})
    where = (fixes["minute"] // 120 + fixes["user"]) % 5
    fixes["time"] = start + pd.to_timedelta(fixes.pop("minute"), unit="min")
    fixes["latitude"], fixes["longitude"] = 52.4 + where / 50, 13.3 + where / 50
    fixes.to_csv("fixes.csv", index=False)
    Path("job.toml").write_text(JOB)


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What Python gives and no command writes."""

    def of(module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"ppmtf_jax{module}"), name)

    def loaded(*folders: str) -> list[Any]:
        return [of("", "Traces").load(folder) for folder in folders]

    def friends() -> Any:
        city = of("", "toy_city")(n_users=60, n_places=20, n_days=1, seed=0).traces
        noise = of(".noise.mechanisms", "SeededNoise")(1)
        settings = {"epsilon_friendship": 10.0, "n_colocations": 50, "noise": noise, "seed": 2}
        return of(".colocation.synthesizer", "synthesize_colocations")(city, **settings).traces.to_frame()

    def picture(name: str, *folders: str, named: bool = False) -> list[Any]:
        drawn = loaded(*folders)
        figure = of(".evaluation.plots", name)(*([dict(zip(folders, drawn, strict=True))] if named else drawn))
        return [
            [np.asarray(part) for line in axes.lines for part in line.get_data()]
            + [np.asarray(part.get_offsets()) for part in axes.collections]
            + [np.asarray(image.get_array()) for image in axes.images]
            + [part.get_height() for part in axes.patches if hasattr(part, "get_height")]
            for axes in figure.axes
        ]

    sets = ("by-bridge", "city/train", "city/test")
    yield "evaluate", lambda: lasting(json.loads(of("", "evaluate")(*loaded(*sets)).to_json()))
    yield "summary", lambda: of("", "FittedModel").load("bridge").summary()
    yield "claims", lambda: repr(of("", "FittedModel").load("private").claims())
    yield "tensors", lambda: repr(loaded("city/train")[0])
    yield "colocations", friends
    yield "copies", lambda: repr(of(".attacks", "check_copies")(*loaded(*sets), seed=1))
    yield "membership", lambda: of(".attacks", "mia_advantage")(*loaded(*sets))
    yield "reidentification", lambda: of(".attacks", "reidentify")(*loaded(*sets[:2]))
    yield "population_maps", lambda: picture("population_maps", *sets)
    yield "transition_matrices", lambda: picture("transition_matrices", *sets[:2])
    yield "jump_length_curves", lambda: picture("jump_length_curves", *sets, named=True)
    yield "visit_fraction_panels", lambda: picture("visit_fraction_panels", *sets, named=True)


# Digests


VOLATILE = re.compile(r"second|memory|_mb$|made_by|version|files|created|time_of|digest|fingerprint|code$")
PASSING = re.compile(
    r"[0-9a-f]{64}|\d[\d.,:]* ?(seconds?|minutes?|ms|s|MB|GB|MiB|GiB)\b|<svg.*?</svg>|base64,[\w+/=]+|/tmp/\S+"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*",
    re.DOTALL,
)


def lasting(value: Any) -> Any:
    """JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {name: lasting(part) for name, part in value.items() if not VOLATILE.search(name)}
    if isinstance(value, list):
        return [lasting(part) for part in value]
    return PASSING.sub("", value) if isinstance(value, str) else value


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a nested value."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "fiu" and value.size:
            yield float(np.nanmean(np.where(np.isfinite(value), value, np.nan))) if np.isfinite(value).any() else 0.0
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        yield float(value)


def text_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        data = value.astype(str) if value.dtype.kind in "OUM" else value
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{text_of(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(text_of, value)) + "]"
    return repr(value)


def digest(value: Any) -> dict[str, Any]:
    if isinstance(value, pd.DataFrame):
        value = {str(name): value[name].to_numpy() for name in value if not VOLATILE.search(str(name))}
    means = list(numbers(value))
    mean = float(np.mean(means)) if means else None
    return {"digest": hashlib.sha256(text_of(value).encode()).hexdigest()[:16], "mean": mean}


def content(path: Path) -> Any:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".csv":
        return pd.read_csv(path)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}
    if path.suffix in (".png", ".svg"):
        return "picture"
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = raw.decode()
    if "json" in path.suffix:
        return lasting(
            [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
        )
    return PASSING.sub("", text)


def called(words: list[str]) -> str:
    """What a command prints, and its error."""
    app = importlib.import_module("ppmtf_jax.cli.app").app
    out, before = io.StringIO(), sys.argv
    sys.argv = ["ppmtf", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            app()
    except SystemExit as end:
        if end.code:
            out.write(f"exit {end.code}")
    except Exception:
        out.write(traceback.format_exc(limit=-1))
    finally:
        sys.argv = before
    return out.getvalue()


def digests() -> dict[str, dict[str, Any]]:
    """Digests of all outputs, in an empty folder that is removed afterwards."""
    found: dict[str, dict[str, Any]] = {}
    folder, home = Path(tempfile.mkdtemp()), Path.cwd()
    os.chdir(folder)
    try:
        tables()
        known = set(folder.rglob("*"))
        for line in COMMANDS.strip().splitlines():
            name = line.replace(f"{SAMPLES}/", "")
            said = called(shlex.split(line))
            failed = said.splitlines()[-2:] if re.search(r"exit \d$|^Traceback", said, re.MULTILINE) else []
            found[f"{name}: words"] = digest(PASSING.sub("", said))
            new = sorted(path for path in folder.rglob("*") if path not in known and path.is_file())
            known.update(new)
            for path in new:
                if path.suffix not in (".txt", ".lock", ".toml") or path.name.isupper():
                    found[str(path.relative_to(folder))] = digest(content(path))
            print(f"{len(new)} files: {name}", *failed, flush=True)
        for name, call in calls():
            try:
                found[f"python: {name}"] = digest(call())
            except Exception as error:
                found[f"python: {name}"] = digest(repr(error))
                print(f"python {name}: {error!r}", flush=True)
    finally:
        os.chdir(home)
        shutil.rmtree(folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--with", dest="other", type=Path, help="compare with this record, not with the code")
    given = parser.parse_args()
    if given.what == "record":
        given.file.write_text(json.dumps(digests(), indent=1, sort_keys=True))
        return
    before = json.loads(given.file.read_text())
    after = json.loads(given.other.read_text()) if given.other else digests()
    for name in sorted(before | after):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            print(f"{'new' if old is None else 'missing'}: {name}")
        elif old["digest"] != new["digest"]:
            print(f"differs: {name}: mean {old['mean']} -> {new['mean']}")
    equal = sum(name in after and after[name]["digest"] == old["digest"] for name, old in before.items())
    print(f"{equal} of {len(before)} outputs are equal")


if __name__ == "__main__":
    main()
