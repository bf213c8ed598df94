"""The examples of CONTRIBUTING.md: each is one file, and all that is said to follow from it does."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.cli.listing import markdown_tables
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import Evaluation, plots
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.jobs.runner import run
from ppmtf_jax.settings import help_of_fields
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from tests.commands import works
from tests.support import minutes, places_in_line, to_traces

ROOT = Path(__file__).resolve().parents[1]
# Name and code of each example's file.
FILES = dict(
    re.findall(
        r"`ppmtf_jax/([\w/]+\.py)`:\n\n^```python\n(.*?)^```",
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
)
ENTRIES = [(DATA_SETS, "bus-cards"), (SYNTHESIZERS, "magnet"), (METRICS, "return_share"), (ATTACKS, "home_guess")]
JOB = """
seed = 1

[import]
source = "bus-cards"
path = "taps.csv"
n_stops = 10

[fit]
system = "magnet"
away = 0.2

[test]
k = 3
"""


@pytest.fixture(scope="module")
def added(tmp_path_factory) -> Iterator[dict[str, ModuleType]]:
    """The examples by the names of their files, which lie in the folders while the registries look into them anew."""
    before, folder = [list(registry) for registry, _ in ENTRIES], tmp_path_factory.mktemp("added")
    names = {name: "ppmtf_jax." + name.removesuffix(".py").replace("/", ".") for name in FILES}
    with pytest.MonkeyPatch.context() as patch:
        for (name, text), (registry, _) in zip(FILES.items(), ENTRIES, strict=True):
            file = folder / name
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            package = importlib.import_module(registry.package)
            patch.setattr(package, "__path__", [*package.__path__, str(file.parent)])
            patch.setattr(registry, "_discovered", False)
        found = [list(registry) for registry, _ in ENTRIES]
        yield {name: sys.modules[module] for name, module in names.items()}
        for registry, entry in ENTRIES:
            registry.remove(entry)
        for module in names.values():
            del sys.modules[module]
    assert [{*after} - {*earlier} for after, earlier in zip(found, before, strict=True)] == [{e} for _, e in ENTRIES]
    assert [list(registry) for registry, _ in ENTRIES] == before


@pytest.fixture(scope="module")
def taps(tmp_path_factory) -> Path:
    """A folder with the table of taps of 40 cards at 12 stops."""
    folder = tmp_path_factory.mktemp("taps")
    traces = toy_city(40, n_places=12, n_days=1, seed=0).traces
    events = traces.to_frame().merge(traces.places.to_frame(), on="place")
    hours = pd.to_timedelta(events["instant"], unit="h")
    tapped = (pd.Timestamp("2024-03-04") + hours).dt.strftime("%Y-%m-%dT%H:%M:%S")
    table = {"card": events["user"], "tapped": tapped, "stop": events["place"]}
    table |= {"lat": events["latitude"], "lon": events["longitude"]}
    pd.DataFrame(table).to_csv(folder / "taps.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def made(added, taps) -> Path:
    """A folder in which every command was called once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(taps)
        works("import", "bus-cards", "taps.csv", "--stops", 10, "--seed", 0, "--out", "data")
        works("fit", "data/train", "--system", "magnet", "--set", "away=0.2", "--out", "model")
        works("synthesize", "model", "--seed", 0, "--out", "synthetic")
        works("test", "model", "synthetic", "--k", 3, "--out", "verdicts")
        works("release", "synthetic", "verdicts", "--out", "released", "--key", "key", "--min-users-per-place", 1)
        real = ("--train", "data/train", "--test", "data/test")
        works("evaluate", "released", "--key", "key", *real, "--json", "metrics.json")
    return taps


@pytest.fixture(scope="module")
def evaluation(made) -> Evaluation:
    return Evaluation.from_json((made / "metrics.json").read_text(encoding="utf-8"))


def test_a_file_in_the_folder_is_all(added):
    """Lists and help know all four: nobody else had to be told."""
    for name, (registry, entry) in zip(FILES, ENTRIES, strict=True):
        assert registry.package == f"ppmtf_jax.{Path(name).parent}".replace("/", ".")
        assert registry[entry].name == entry
    tables = markdown_tables()
    assert [name for name in ("bus-cards", "magnet", "Return share", "Home guess") if f"| {name} |" not in tables] == []
    for words, shown in (
        (["import"], ["bus-cards"]),
        (["import", "bus-cards"], ["--stops"]),
        (["fit"], ["magnet:", "away=0.1"]),
        (["run"], ['source="bus-cards":', "n_stops=200"]),
    ):
        text = works(*words, "--help", columns=200)
        assert [name for name in shown if name not in text] == []


def test_examples_of_the_examples_run(added):
    """What their docstrings show; and each docstring explains every setting."""
    results = [doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE) for module in added.values()]
    assert sum(result.attempted for result in results) == 3
    assert sum(result.failed for result in results) == 0
    for registry, entry in ENTRIES[:2]:
        kind = registry[entry].settings
        assert list(help_of_fields(kind)) == list(kind.__dataclass_fields__)


def test_import_writes_train_and_test(made):
    train, test = (Traces.load(made / "data" / name) for name in ("train", "test"))
    assert (train.n_users, test.n_users) == (32, 8)
    # Of the ten stops those that five of the training cards were at.
    assert 5 <= train.n_places == test.n_places <= 10


def test_traces_are_synthesized_tested_and_released(made):
    train, synthetic = Traces.load(made / "data" / "train"), Traces.load(made / "synthetic")
    most_visited = np.bincount(train.place).argmax()
    # 768 events, away from the place with probability 0.2 * 9 / 10: standard deviation 0.014.
    assert np.mean(synthetic.place == most_visited) == pytest.approx(1 - 0.2 * 9 / 10, abs=5 * 0.014)
    # The model is the same for all users, so that every trace passes.
    assert pd.read_parquet(made / "verdicts" / "verdicts.parquet")["passed"].all()
    assert Traces.load(made / "released").n_events == synthetic.n_events
    statement = json.loads((made / "released" / "privacy.json").read_text(encoding="utf-8"))
    assert statement["generator"]["system"] == "magnet"
    assert statement["generator"]["settings"] == {"away": 0.2}


def test_their_numbers(made, evaluation):
    train, test = (Traces.load(made / "data" / name) for name in ("train", "test"))
    shares = []
    for traces in (train, test):
        at = {(user, instant): place for user, _, instant, place in traces.to_frame().itertuples(index=False)}
        period = traces.time_grid.period
        # Three events of one period.
        in_a_row = [(u, i) for u, i in at if (u, i + 1) in at and (u, i + 2) in at and i % period < period - 2]
        shares.append(np.mean([at[u, i] == at[u, i + 2] for u, i in in_a_row]))
    assert evaluation.value("return_share", "training") == pytest.approx(shares[0] - shares[1])
    assert evaluation.value("home_guess", "training") == 1
    frame = train.to_frame()
    homes = frame.groupby("user")["place"].agg(lambda places: places.value_counts().idxmax())
    magnet = frame["place"].value_counts().idxmax()
    # A trace of 24 events is most often at the magnet, and some users have two places of equal rank.
    assert evaluation["home_guess"] == pytest.approx((homes == magnet).mean(), abs=2 / 32)


def test_numbers_of_traces_known_by_heart(added):
    places, grid = places_in_line(4), minutes(4)
    first = [(0, 0, instant, place) for instant, place in enumerate([1, 1, 2, 1])]
    traces = to_traces([*first, (1, 0, 0, 3), (1, 0, 1, 3), (1, 0, 3, 3)], places, grid)
    returns, homes = added["evaluation/metrics/return_share.py"], added["attacks/home_guess.py"]
    # Of 1, 1, 2 and 1, 2, 1; the second user has a gap.
    assert returns.return_share(Windows.of(traces)).value.tolist() == [False, True]
    assert homes.most_visited(traces.user, traces.place).tolist() == [1, 3]
    assert homes.most_visited(np.array([0, 0]), np.array([2, 1])).tolist() == [1]


def test_the_metric_has_a_gauge_in_its_section_of_the_report(evaluation):
    data = object.__new__(ReportData)  # gauges need no more than these
    data.__dict__.update(evaluation=evaluation, column=evaluation.columns[0], chance={})
    assert "How often people step back" in [each.title for each in data.gauges("persons").items]


def test_a_job_knows_all_four(added, taps, monkeypatch):
    monkeypatch.setattr(plots, "save_pictures", lambda folder, **others: None)
    file = taps / "job.toml"
    file.write_text(JOB, encoding="utf-8")
    result = run(JobConfig.load(file))
    assert result.n_released == result.n_traces == 32
    assert {"return_share", "home_guess"} <= set(result.evaluation.metrics)


def test_no_other_file_of_the_package_knows_them():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ppmtf_jax").rglob("*.py"))
    assert [entry for _, entry in ENTRIES if entry in sources] == []
