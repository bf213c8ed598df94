"""The command line as a newcomer and as a careless person uses it."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ppmtf_jax.cli import group, listing, modelling, releasing, running
from ppmtf_jax.cli.app import app
from ppmtf_jax.cli.console import console, warn_of_few
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings, plots
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.gibbs.diagnostics import Diagnosis, summarize
from ppmtf_jax.gibbs.run import Quantity
from ppmtf_jax.jobs import steps
from ppmtf_jax.jobs.config import TABLES
from ppmtf_jax.privacy import plausible_deniability
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.release import load_with_key
from ppmtf_jax.runtime.files import exclusive_use
from ppmtf_jax.runtime.folders import column_of
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from tests.commands import call, refused, works
from tests.faults import parquet_fails
from tests.pages import exit_code_of_help
from tests.people.examples import try_few_settings
from tests.trace_models.nobody import registered_nobody

COMMANDS = [
    "demo", "run", "report", "compare", "list", "import", "fit", "diagnose", "complete", "synthesize", "colocate",
    "test", "release", "evaluate", "export", "attack",
]  # fmt: skip
READERS = [
    "people-flow", "foursquare", "foursquare-www", "gowalla", "geolife", "lbsn2vec", "checkins", "toy-city"
]  # fmt: skip
EVERY_COMMAND = [[name] for name in COMMANDS if name != "import"] + [["import", name] for name in READERS]
EVERY_COMMAND += [["attack", name] for name in ("reidentify", "membership", "unicity")]
EVERY_COMMAND += [["export", name] for name in ("population", "traces")]


@pytest.fixture
def here(made, monkeypatch) -> Path:
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def copied(made, tmp_path, monkeypatch) -> Path:
    """A copy of the same for one test alone."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Help


@pytest.mark.parametrize("words", [[], ["import"], *EVERY_COMMAND], ids=" ".join)
def test_help_fits_a_terminal_and_has_an_example(words):
    text = works(*words, "--help")
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert re.search(r"ppmtf \w+", text.rpartition("╯")[2])
    if words and words != ["import"]:
        assert "Example: ppmtf" in text
    if len(words) == 1:
        # The list of commands says what each of them says of itself.
        assert group.COMMANDS[words[0]].help in " ".join(text.replace("│", " ").split())


def test_the_program_itself():
    assert re.findall(r"│ (\w+) ", works("--help")) == COMMANDS
    assert re.fullmatch(r"ppmtf_jax \d+\.\d+\.\d+\n", works("--version"))
    for words in ([], ["import"]):
        result = call(*words)
        assert result.exit_code == 2
        assert "Usage:" in result.output


def test_the_package_is_the_command_line_and_its_list_of_commands_needs_no_jax():
    """Importing JAX would take seconds, also for every word that a shell completes."""
    command = [sys.executable, "-X", "importtime", "-m", "ppmtf_jax", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert "Usage: ppmtf" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "ppmtf_jax.cli.app" in imported
    assert not {"jax", "numpy", "pandas", "pyarrow"} & imported


@pytest.mark.parametrize(
    ("line", "completed"),
    [("ppmtf ev", "evaluate"), ("ppmtf import ch", "checkins"), ("ppmtf test --noise", "--noise-epsilon")],
)
def test_shells_complete_commands_and_options(monkeypatch, line, completed):
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    result = CliRunner().invoke(app, prog_name="ppmtf", env=variables | {"_PPMTF_COMPLETE": "complete_bash"})
    assert result.output.split() == [completed]


@pytest.mark.parametrize(("words", "meant"), [(["tets"], "test"), (["import", "checkin"], "checkins")])
def test_a_mistyped_command_is_guessed(words, meant):
    result = call(*words)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.output


def test_help_of_fit_lists_every_setting_of_every_system():
    text = works("fit", "--help")
    for system, synthesizer in SYNTHESIZERS.items():
        listed = re.search(rf"• {system}: (.*?)(•|╭)", text, flags=re.DOTALL)
        assert all(f"{name}=" in listed[1] for name in synthesizer.settings.__dataclass_fields__)


def test_help_of_run_lists_every_table():
    text = works("run", "--help")
    sources = {f'[import] source="{name}"': entry.settings for name, entry in DATA_SETS.items()}
    for name, kind in (sources | {f"[{name}]": kind for name, kind in TABLES.items()}).items():
        listed = re.search(rf"• {re.escape(name)}: (.*?)(•|╭)", text, flags=re.DOTALL)
        assert all(re.search(rf"\b{field}\b", listed[1]) for field in kind.__dataclass_fields__)


def test_examples_of_the_help_work_one_after_the_other(tmp_path, monkeypatch):
    """As they stand, but on a city of few people and with one short fit; all others are known to the program."""
    monkeypatch.chdir(tmp_path)
    changed = {"import toy-city": "--users 40 --places 12 --days 1 --out city", "fit": "--system uniform"}
    changed |= {"synthesize": "", "test": "", "release": "--min-users-per-place 1", "evaluate": "--no-attacks"}
    examples = {}
    for words in EVERY_COMMAND:
        said = " ".join(works(*words, "--help").rpartition("╯")[2].split())
        examples[" ".join(words)] = shlex.split(said.removeprefix("Example: ppmtf "))
    for command, more in changed.items():
        # The settings of the example are those of ppmtf.
        works(*shlex.split(re.sub(r"--set \S+ ", "", shlex.join(examples.pop(command)))), *shlex.split(more))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "city", "metrics.json", "model", "released", "released-key", "synthetic", "verdicts"
    ]  # fmt: skip
    assert [command for command, words in examples.items() if exit_code_of_help(words)] == []


def test_list_gives_descriptions_room_on_a_narrow_terminal(monkeypatch):
    for width, n_words, headed in ((80, 8, False), (140, 12, True)):
        monkeypatch.setattr(listing.console, "width", width)
        said = works("list")
        assert max(map(len, said.splitlines())) <= width
        assert (re.search("Better +A good value", said) is not None) == headed
        line = next(line for line in said.splitlines() if line.startswith(" TP-TV "))
        assert len(line.split()) >= n_words
        assert "near Training" in said


# What the commands do


def test_test_writes_verdicts_and_release_what_passed(here):
    verdicts = pd.read_parquet("verdicts/verdicts.parquet")
    assert list(verdicts) == [
        "user", "trace", "log_likelihood", "plausible_users", "verifiers", "threshold", "passed"
    ]  # fmt: skip
    assert len(verdicts) == 64
    passed = set(verdicts.loc[verdicts["passed"], ["user", "trace"]].itertuples(index=False, name=None))
    key = pd.read_parquet("key/key.parquet")
    assert set(key[["user", "synthetic_trace"]].itertuples(index=False, name=None)) == passed
    assert Traces.load("released").n_users == len(passed)


@pytest.mark.usefixtures("copied")
def test_traces_of_nobody_go_from_the_model_to_the_release():
    """All commands after `fit`, and what a person reads."""
    with registered_nobody():
        said = works("fit", "city/train", "--system", "nobody", "--out", "model-n")
        assert "nobody model of nobody in model-n" in said
        works("synthesize", "model-n", "--people", 50, "--out", "people")
        said = refused("test", "model-n", "people", "--out", "x")
        assert "release the traces with their model" in " ".join(said.split())
        said = " ".join(works("release", "people", "--model", "model-n", "--out", "given").split())
        assert "50 traces of nobody in given; read given/PRIVACY.txt first Every person whose data was used is" in said
        sets = ("--train", "city/train", "--test", "city/test")
        said = works("evaluate", "given", *sets)
        assert re.search(r"Metric +Released +Training", said)
        assert "Without the key" not in said
        said = works("attack", "membership", "given", *sets, "--attack", "density_ratio")
        assert "Strongest attack on these traces" in said
        said = refused("attack", "reidentify", "city/train", "--released", "given")
        assert "expected traces that were made from people; found traces of nobody" in " ".join(said.split())
        works("export", "traces", "given", "--out", "given.csv")


@pytest.mark.usefixtures("copied")
def test_complete_fills_gaps_and_says_that_they_are_private():
    text = works("complete", "model", "city/train", "--how", "random", "--out", "whole", "--seed", 3)
    recorded, whole = Traces.load("city/train"), Traces.load("whole")
    assert f"{32 * recorded.time_grid.n_instants} events of 32 users in whole. Keep them as private as" in text
    assert recorded.n_events < whole.n_events == 32 * recorded.time_grid.n_instants
    both = whole.to_frame().merge(recorded.to_frame(), on=["user", "trace", "instant"], suffixes=("", "_recorded"))
    assert len(both) == recorded.n_events
    assert (both["place"] == both["place_recorded"]).all()
    assert stat.S_IMODE(Path("whole").stat().st_mode) == 0o700
    about = json.loads(Path("whole/ppmtf.json").read_text())
    assert (about["kind"], about["about"]["how"]) == ("completed traces", "random")
    works("fit", "whole", "--system", "training", "--out", "given-away")
    works("complete", "model", "city/train", "--out", "whole", "--overwrite")
    assert not Traces.load("whole").to_frame().equals(whole.to_frame())
    said = refused("test", "model", "whole", "--out", "x")
    assert "traces made by the model; found others" in said


@pytest.mark.usefixtures("copied")
def test_compare_shows_means_and_goes_on_where_it_was(monkeypatch):
    command = ("compare", "city/train", "city/test", "--out", "compared", "--seeds", 2, "--no-attacks", "--quiet")
    command += ("--system", "uniform", "--system", "sgd n_copied=2")
    monkeypatch.setattr(console, "width", 60)
    narrow = works(*command)
    assert re.search(r"TP-TV +0\.\d{4} +0\.\d{4} +0\.\d{4}", narrow)
    assert "±" not in narrow
    monkeypatch.setattr(console, "width", 160)
    wide = works(*command, "--passed")
    assert wide.count("done before") == 4
    assert "Means over seeds ± standard deviation." in wide
    assert re.search(r"TP-TV +0\.\d{4} ± 0\.\d{4}", wide)
    assert len(pd.read_csv("compared/compare.csv")) > 0
    assert "Did you mean n_copied" in refused(*command[:-1], "sgd copied=2")


@pytest.mark.usefixtures("copied")
def test_diagnose_shows_and_writes_what_the_chains_did(monkeypatch):
    def diagnosis(model, train, *, n_sweeps, n_chains, **_):
        rng = np.random.default_rng(0)
        single, average = Quantity("held_out", "visits"), Quantity("held_out_average", "visits")
        judged = [Quantity("log_joint"), Quantity("rmse", "visits"), Quantity("size", "next_place")]
        judged += [Quantity("cell", "visits", number) for number in (3, 7)]
        trace = {quantity: rng.normal(size=(n_chains, n_sweeps)) for quantity in (*judged, single)}
        trace[average] = np.where(np.arange(n_sweeps) < 20, np.nan, trace[single])
        table = summarize({quantity: trace[quantity][:, 20:] for quantity in judged})
        advice = [f"{n_sweeps} sweeps were enough"]
        return Diagnosis(table, trace, n_sweeps, advice, "Held out: some cells.")

    monkeypatch.setattr(modelling, "diagnose_model", diagnosis)
    text = works("diagnose", "factorized", "--train", "city/train", "--chains", 3, "--sweeps", 40, "--out", "d")
    assert "ppmtf, 3 chains of 40 sweeps" in text
    assert re.search(r"log joint density +\S+ +\S+ +\d\.\d\d\d +\d+ +\d+", text)
    assert re.search(r"2 predicted visits, worst +- +- +\d\.\d\d\d", text)
    assert "- 40 sweeps were enough\n" in text
    assert max(map(len, text.splitlines())) <= 80
    assert {path.name for path in Path("d").iterdir()} == {"ppmtf.json", "summary.csv", "sweeps.csv", "traces.png"}
    summary = pd.read_csv("d/summary.csv", index_col="quantity")
    assert list(summary.columns) == ["mean", "sd", "r_hat", "ess_bulk", "ess_tail"]
    assert len(pd.read_csv("d/sweeps.csv")) == 3 * 40
    assert Path("d/traces.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("system", ["ppmtf", "itf"])
def test_diagnose_of_a_fitted_model(copied, system):
    settings = ("rank=2", "zeros=weighted", "n_sweeps=20")
    works("fit", "city/train", "--system", system, *(w for s in settings for w in ("--set", s)), "--out", "fitted")
    text = works("diagnose", "fitted", "--train", "city/train", "--chains", 2, "--out", "d", "--seed", 3)
    assert f"{system}, 2 chains of 20 sweeps" in text
    assert "20 sweeps were" in text
    works("diagnose", "fitted", "--train", "city/train", "--chains", 2, "--out", "e", "--seed", 3)
    assert files(Path("d")) == files(Path("e"))
    works("diagnose", "fitted", "--train", "city/train", "--chains", 2, "--out", "e", "--seed", 4, "--overwrite")
    assert files(Path("d"))["summary.csv"] != files(Path("e"))["summary.csv"]


@pytest.mark.usefixtures("copied")
def test_test_with_noise_and_in_single_precision(monkeypatch):
    works("test", "model", "synthetic", "--out", "single", "--precision", "float32", "--verifiers", "20")
    verdicts = pd.read_parquet("single/verdicts.parquet")
    assert verdicts["log_likelihood"].dtype == "float32"
    assert verdicts["verifiers"].max() <= 20
    monkeypatch.setattr(plausible_deniability, "add_laplace", lambda k, *noise, **_: k + 1000 * (noise == (1, 0.5)))
    works("test", "model", "synthetic", "--out", "noisy", "--noise-epsilon", "0.5")
    assert not pd.read_parquet("noisy/verdicts.parquet")["passed"].any()


@pytest.mark.usefixtures("copied")
def test_test_draws_pass_rates(monkeypatch):
    drawn = []
    original = plots.pass_rate_curves
    monkeypatch.setattr(plots, "pass_rate_curves", lambda curves: drawn.append(curves) or original(curves))
    works("test", "model", "synthetic", "--k", 3, "--out", "stopped", "--plot", "deep/stopped.png")
    works("test", "model", "synthetic", "--k", 3, "--out", "all", "--count-all", "--plot", "all.png")
    assert Path("deep/stopped.png").read_bytes()[:4] == Path("all.png").read_bytes()[:4] == b"\x89PNG"
    (stopped,), (counted,) = (curves.values() for curves in drawn)
    assert len(stopped) == 3
    assert len(counted) == 200
    np.testing.assert_array_equal(counted[:3], stopped)
    text = refused("test", "model", "synthetic", "--out", "noisy", "--noise-epsilon", 1, "--plot", "noisy.png")
    assert "Add --count-all" in text
    assert not Path("noisy").exists()


REAL = ["--train", "city/train", "--test", "city/test"]


@pytest.mark.usefixtures("copied")
def test_evaluate_prints_a_table_and_writes_json():
    text = works("evaluate", "released", "--key", "key", *REAL, "--json", "deep/m.json")
    # What is released has no friendships, and complete traces of one day.
    friends = ("friend_meetings", "friend_graph")
    left_out = {quantity.name for name in friends for quantity in METRICS[name].quantities}
    left_out |= {f"jump_{gap}_tv" for gap in ("1h", "6h", "24h", "later")}
    left_out |= {"events_w1", "event_gap_tv", "day_events_tv", "night_homes_difference"}
    quantities = {name: each for name, each in EvaluationSettings().quantities().items() if name not in left_out}
    # Long titles are wrapped.
    assert {word for quantity in quantities.values() for word in quantity.title.split()} <= set(text.split())
    assert max(map(len, text.splitlines())) <= 80
    evaluation = Evaluation.from_json(Path("deep/m.json").read_text())
    assert (set(evaluation.metrics), evaluation.columns) == (set(quantities), ["released", "training", "uniform"])
    works("evaluate", "released", "--key", "key", *REAL, "--json", "deep/n.json", "--no-attacks")
    without = Evaluation.from_json(Path("deep/n.json").read_text())
    of_utility = set(EvaluationSettings(attacks=False).quantities()) - left_out
    assert set(without.metrics) == of_utility < set(evaluation.metrics)
    assert without["tp_tv"] == evaluation["tp_tv"]
    train = Traces.load("city/train")
    assert evaluation.lineage == {
        "training traces": train.digest,
        "test traces": Traces.load("city/test").digest,
        column_of("released"): load_with_key("released", "key", train).digest,
    }


@pytest.mark.usefixtures("here")
def test_evaluate_shows_what_passed_beside_all():
    text = works("evaluate", "synthetic", "--verdicts", "verdicts", *REAL, "--no-attacks")
    assert re.search(r"Metric +Released +All +Training +Uniform", text)
    assert max(map(len, text.splitlines())) <= 80
    text = works("evaluate", "synthetic", *REAL, "--no-attacks")
    assert re.search(r"Metric +Synthetic +Training +Uniform", text)


@pytest.mark.usefixtures("here")
def test_a_release_without_its_key_has_no_owners_to_look_for():
    said = refused("evaluate", "released", *REAL)
    assert "the key of the release; found none. Give it with --key, or leave the attacks out with --no-attacks" in said
    groups = ("--set", "group_tv.min_users=2", "--set", "group_tv.n_cells=1")
    text = works("evaluate", "released", *REAL, "--no-attacks", *groups)
    assert re.search(r"TP-TV +\S+", text)
    # Nobody knows of which training user's group they are.
    assert re.search(r"Group-TV +- +0\.0000 +\d", text)
    assert re.search(
        r"Group-TV +0\.\d{4} +0\.0000 +\d",
        works("evaluate", "released", "--key", "key", *REAL, "--no-attacks", *groups),
    )
    assert "Without the key, all released traces are measured together" in " ".join(text.split())


@pytest.mark.parametrize(("traces", "key"), [("synthetic", []), ("released", ["--key", "key"])])
def test_traces_are_not_measured_against_data_that_they_were_not_made_from(here, tmp_path, traces, key):
    """The same users and places, but other events."""
    train = Traces.load("city/train")
    replace(train, place=train.place[::-1].copy()).save(tmp_path / "other")
    said = refused("evaluate", traces, *key, "--train", tmp_path / "other", "--test", "city/test")
    said = " ".join(said.split())
    assert re.search(r"training set and \S+ of the same training traces; found those of different", said)


@pytest.mark.usefixtures("copied")
def test_settings_of_metrics_can_be_given():
    works("evaluate", "synthetic", *REAL, "--no-attacks", "--json", "a.json")
    works("evaluate", "synthetic", *REAL, "--no-attacks", "--json", "b.json", "--set", "tm_emd.n_bins=5")
    a, b = (Evaluation.from_json(Path(name).read_text()) for name in ("a.json", "b.json"))
    assert b["tm_emd_y"] < a["tm_emd_y"]
    assert b["tp_tv"] == a["tp_tv"]
    # An earlier file is replaced on request.
    again = ["evaluate", "synthetic", *REAL, "--no-attacks", "--json", "a.json"]
    assert "a name that is free" in refused(*again)
    works(*again, "--overwrite")
    assert "METRIC.NAME=VALUE; found 'n_bins'" in refused("evaluate", "synthetic", *REAL, "--set", "n_bins=5")
    assert "among tp_tv, tm_emd, vf_tv, " in refused("evaluate", "synthetic", *REAL, "--set", "tm_emds.n_bins=5")


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("name", ["city/train/traces.parquet", "note.txt", "model/model.json", "synthetic"])
def test_a_file_of_somebody_else_is_never_replaced(name):
    """`--json city/train/traces.parquet` destroyed the training data."""
    before = files(Path())
    for overwrite in ([], ["--overwrite"]):
        said = refused("evaluate", "synthetic", *REAL, "--json", name, *overwrite)
        assert "Nothing was changed" in said
        said = refused("test", "model", "synthetic", "--out", "x", "--plot", name, *overwrite)
        assert re.search(r"Nothing was changed|\.png, \.svg", said)
    assert files(Path()) == before


def test_seeds_decide(copied):
    frames = []
    for number, seed in enumerate([["--seed", 0], ["--seed", 0], ["--seed", 1], [], []]):
        works("synthesize", "model", *seed, "--out", f"s{number}")
        frames.append(Traces.load(f"s{number}").to_frame())
    assert frames[0].equals(frames[1])
    assert not frames[0].equals(frames[2])
    assert not frames[3].equals(frames[4])


def test_people_days_and_dates(copied):
    said = works("synthesize", "model", "--people", 5, "--days", 1, "--start", "2031-05-06", "--out", "people")
    made = Traces.load("people")
    assert "5 traces with 120 events" in said
    assert (len(made.trace_table()[0]), made.time_grid.start, made.origin.dated) == (5, "2031-05-06T00:00:00", True)
    for wrong, message in (
        (["--days", 2], "traces of 1 day, as this model makes them"),
        (["--start", "soon"], "start as a date"),
        (["--traces-per-user", 1, "--people", 3], "either --traces-per-user or --people|traces_per_user or people"),
    ):
        found = " ".join(refused("synthesize", "model", *wrong, "--out", "no").split())
        assert re.search(message, found)


@pytest.mark.slow
def test_weeks_with_other_weekends_from_the_table_to_the_numbers(copied, monkeypatch):
    """People are at one of two places on Fridays and Saturdays, and at others on all other days, by synthesis too."""
    rng, times = np.random.default_rng(0), pd.date_range("2024-01-01", "2024-01-14 23:00", freq="h")
    user, hour = np.repeat(np.arange(40), len(times)), np.tile(np.arange(len(times)), 40)
    is_free = np.isin(times.day_of_week.to_numpy()[hour], [4, 5])
    place = rng.integers(2, size=len(user)) + 2 * ~is_free
    columns = {"user": user, "time": times[hour], "latitude": 24.7 + 0.01 * place, "longitude": 46.7, "place": place}
    pd.DataFrame(columns).to_csv("rows.csv", index=False)
    weeks = ["--time-zone", "Asia/Riyadh", "--period", "week", "--day-types", "wwwweew"]
    works("import", "checkins", "rows.csv", *weeks, "--seed", 0, "--out", "typed")
    try_few_settings(monkeypatch)
    works("fit", "typed/train", "--set", "memory=none", "--set", "n_clusters=1", "--seed", 0, "--out", "of-weeks")
    works("synthesize", "of-weeks", "--seed", 0, "--out", "made")
    made = Traces.load("made")
    is_at_free_place = np.isin(made.places.ids.astype(str)[made.place], ["0", "1"])
    of_day = [is_at_free_place[made.instant // 24 % 7 == day].mean() for day in range(7)]
    np.testing.assert_allclose(of_day, [0, 0, 0, 0, 1, 1, 0], atol=0.1)
    assert "TP-TV" in works("evaluate", "made", "--train", "typed/train", "--test", "typed/test", "--no-attacks")
    assert "7 letters" in refused("import", "checkins", "rows.csv", *weeks[:-1], "we", "--out", "no")


def test_settings_reach_the_system_and_there_are_no_bars_without_a_terminal(copied):
    words = ("--system", "sgd", "--set", "n-copied=3", "--seed", 5, "--out", "sgd")
    result = call("fit", "city/train", *words)
    assert (result.stdout.splitlines()[-1], result.stderr) == ("sgd model of 32 users in sgd", "")
    model = FittedModel.load("sgd")
    assert (model.system, model.settings, model.seed) == ("sgd", {"n_copied": 3}, 5)


@pytest.mark.parametrize(
    ("columns", "header"),
    [("user=who,time=when,latitude=y,longitude=x,place=p", True), ("user=0,time=1,latitude=2,longitude=3", False)],
)
def test_import_of_a_table(tmp_path, monkeypatch, columns, header):
    monkeypatch.chdir(tmp_path)
    times = 1_700_000_000 + np.arange(40) * 3600
    table = pd.DataFrame({"who": np.arange(40) % 10, "when": times, "y": 52.05, "x": 5.05, "p": "a"})
    table.to_csv("my.csv", index=False, header=header)
    more = ["--time-zone", "Europe/Berlin", *([] if header else ["--grid", "52,52.1,5,5.1,2,2"])]
    assert "mine/train: 8 users" in works("import", "checkins", "my.csv", "--columns", columns, "--out", "mine", *more)
    train = Traces.load("mine/train")
    assert (train.n_users, train.n_places) == (8, 1)


def test_a_check_shows_what_an_import_would_give_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hours = pd.date_range("2024-01-01T08:00", periods=10, freq="h", tz="Asia/Tokyo")
    table = pd.DataFrame({"uid": np.arange(80) % 8, "when": np.repeat(hours, 8), "lat": 35.7, "lon": 139.7, "poi": "a"})
    table.to_csv("my.csv", index=False)
    text = works("import", "checkins", "my.csv", "--time-zone", "Asia/Tokyo", "--check")
    assert "column 'uid' is taken for user" in text
    assert "by the clocks of Asia/Tokyo" in text
    # Eight users at each hour from 8 to 17.
    assert [int(n) for n in re.findall(r"\d\d h #* +(\d+)", text)] == [0] * 8 + [8] * 10 + [0] * 6
    assert "Half of the 8 users have 10 events or more; half of the gaps between them are 1 h or more." in text
    assert "For synthesis: nothing looks amiss." in text
    assert [path.name for path in tmp_path.iterdir()] == ["my.csv"]
    # Without a zone, the clocks are those of UTC, nine hours behind.
    wrong = works("import", "checkins", "my.csv", "--check")
    assert "80 of 80 check-ins are where the sun is over 4 h off the clocks of UTC" in wrong
    assert "times without an offset" in refused("import", "checkins", "my.csv", "--times-in", "UTC", "--check")


def test_errors_of_an_import_name_its_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.csv").write_text("user,date,lat,lon\n1,2024-01-01,40.7,-74.0\n")
    said = refused("import", "checkins", "my.csv", "--check", "--time-zone", "Asia/Tokyo")
    assert "such as --columns date=day,time=clock; or count in days, with --step 86400 and --slot 86400" in said
    assert "or choose a grid with --grid" in said
    Path("my.csv").write_text("user,time,lat,lon,poi\n1,2024-01-01T08:00,40.7,-74.0,a\n")
    assert "such as --time-zone Europe/Paris" in refused("import", "checkins", "my.csv", "--check")


def test_names_of_files_need_not_be_in_the_encoding_of_the_locale(tmp_path):
    """Without it, neither could the files be written nor their name be printed."""
    ascii_locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ascii_locale["PYTHONPATH"] = str(Path(__file__).parents[2])
    line = ["import", "toy-city", "--users", "10", "--places", "9", "--out", "Z\u00fcrich"]
    program = [sys.executable, "-c", "from ppmtf_jax.cli.app import app; app()", *line]
    done = subprocess.run(program, cwd=tmp_path, env=os.environ | ascii_locale, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert b"rich/train: 8 users" in done.stdout
    assert (tmp_path / "Z\u00fcrich" / "train" / "traces.parquet").is_file()


def test_run_shows_both_sides_of_the_test(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plots, "save_pictures", lambda folder, **_: (folder / "x.png").touch())
    job = '[import]\nsource = "toy-city"\nn_users = 40\nn_places = 12\nn_days = 1\n[fit]\nsystem = "uniform"\n'
    job += "[synthesize]\ntraces_per_user = 2\n"
    job += "[release]\nmin_users_per_place = 1\n[evaluate]\nattacks = false\n[test]\nk = {}\n"
    Path("job.toml").write_text(job.format(2))
    text = works("run", "job.toml")
    assert re.search(r"Metric +Released +Training +Uniform +A good value", text)
    assert "64 of 64 traces passed the privacy test." in text
    assert "For anyone: job/release (read PRIVACY.txt first). Only for you: job/private" in text
    assert "Pictures: x.png in job/private/pictures" in text
    assert max(map(len, text.splitlines())) <= 80
    Path("job.toml").write_text(job.format("999\nnoise_epsilon = 1"))
    text = works("run", "job.toml")
    assert re.search(r"Metric +All +Training +Uniform +A good value", text)
    assert "None of the 64 traces passed" in text
    assert "evaluate ..." in text
    assert "fit: done before" in text


def test_demo_runs_a_job(tmp_path, monkeypatch):
    seen = []

    def run(config, **_):
        seen.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_job", run)
    assert call("demo", "--out", tmp_path / "d", "--seed", 3).exit_code == 130
    assert (seen[0].out, seen[0].seed, seen[0].system) == (tmp_path / "d", 3, "bridge")
    assert list(seen[0].compared) == ["ppmtf"]


# Careless use


BAD = [
    ("fit nowhere --out x", "nowhere: expected a trace-set folder; found no such folder"),
    ("fit model --out x", "expected a trace set with traces.parquet"),
    ("fit note.txt --out x", "a trace-set folder; found a file. Convert it first: `ppmtf import checkins note.txt"),
    ("fit city/train --out model", "a name that is free; found an existing one.*--overwrite"),
    ("fit city/train --out note.txt --overwrite", "earlier model folder.*found a file.*Nothing was changed"),
    ("fit city/train --out city/train --overwrite", "a folder apart from the input"),
    ("fit city/train --out note.txt/x", "a folder to write into; found .*note.txt, which is a file"),
    ("fit city/train --out x --system magic", "expected one of .*ppmtf, .*sgd, .*uniform; found 'magic'"),
    ("fit city/train --out x --system ppmtf --set rnk=3", "found 'rnk'. Did you mean rank"),
    ("fit city/train --out x --set rank", "expected name=value; found 'rank'"),
    ("fit city/train --out x --system ppmtf --set max-count=2 --set max_count=3", "one value of max_count; found 2"),
    ("fit city/train --out x --system uniform --set a=1", "no settings; found 'a'"),
    ("fit city/train --out x --seed -1", r"from 0 to 2\^128 - 1; found -1"),
    ("fit city/train --out x --engine mpi", "dask:tcp://HOST:8786"),
    ("fit city/train", "Missing option '--out'"),
    ("diagnose model --train city/train --out x", "ppmtf or itf; found uniform. You need not do anything: "),
    ("diagnose factorized --train city/test --out x", "model's 32 users; found 8 users, 8 of them unknown to it, "),
    ("diagnose factorized --train other/train --out x", "expected the model's time grid; found another"),
    ("complete model city/test --out x", "users that the model was trained on; found others"),
    ("complete model city/train --out synthetic --overwrite", "earlier completed traces folder.*Nothing was changed"),
    ("synthesize city/train --out x", "expected a model folder.*Make one with `ppmtf fit`"),
    ("synthesize model --out verdicts --overwrite", "earlier synthetic traces folder to replace; found a"),
    ("colocate synthetic --out x", "friendships of the users; found none known"),
    ("colocate city/train --out x --epsilon-friendship 0 --epsilon-colocation -1", "2 problems.*epsilon_friendship"),
    ("colocate other/train --out x --model model", "on the time grid that the model was learned from; found another"),
    ("colocate city/train --out synthetic --overwrite", "earlier traces of synthetic friends folder"),
    ("test model city/train --out x", "traces made by the model; found others"),
    ("test factorized synthetic --out x", "traces made by the model; found those of another one"),
    ("test model synthetic --out x --verifiers 999", "from 1 to 32.*found 999"),
    ("test model synthetic --out x --engine processes:0", "a number of processes"),
    ("release synthetic verdicts --out x --key key", "a name that is free"),
    ("release synthetic verdicts --out x --key x/key", "a key outside the release"),
    ("release synthetic verdicts --out x", "--key FOLDER beside VERDICTS; found none"),
    ("release synthetic --out x", "VERDICTS, or for traces of nobody --model MODEL; found neither"),
    ("release synthetic verdicts --model model --out x", "--model MODEL; found both"),
    ("release synthetic --model model --out x --key y", "no --key: nobody stands behind these traces; found y"),
    ("release synthetic --model model --out x", "model of nobody; found a uniform model, which knows users. Test"),
    ("release city/train verdicts --out x --key y", "the verdicts of these traces; found those of other traces"),
    ("evaluate synthetic --key key --train city/train --test city/test", "a release, which a key is for; found other"),
    ("evaluate released --verdicts verdicts --train city/train --test city/test", "verdicts are of; found a release"),
    ("evaluate synthetic --train city/train", "Missing option '--test'"),
    ("evaluate city/train --train synthetic --test city/test", "real traces as --train; found syn.*city/train swapped"),
    ("evaluate city/test --train city/train --test released", "real traces as --test; found release. Are released and"),
    ("evaluate synthetic --train city/train --test city/test --json empty", "empty: .*found a folder"),
    ("evaluate released --key city --train city/train --test city/test", "a release key folder; found"),
    ("import people-flow city --out x", "4 problems"),
    ("import gowalla note.txt --out x", "import gowalla: .*such as --time-zone America/Chicago"),
    ("import checkins note.txt", "--out: expected a folder to write to, or --check"),
    ("import checkins note.txt --check", "such as --columns user=uid"),
    ("import checkins note.txt --out x --places 3 --grid 1,2,1,2,5,5", "choice of places; found --places and --grid"),
    ("import checkins note.txt --out x --times-in Mars", "an IANA time zone such as Asia/Tokyo; found 'Mars'"),
    ("import checkins note.txt --columns user --out x", "--columns: expected name=value; found 'user'"),
    ("import checkins note.txt --grid a,b --out x", "--grid: expected numbers.*; found 'a,b'"),
    ("import checkins note.txt --step 0 --max-gap -1 --time-zone Mars --out x", "3 problems"),
    ("import teleport --out x", "No such command 'teleport'"),
    ("run nowhere.toml", "expected a configuration file; found no such file"),
    ("run note.txt", "expected a readable TOML file"),
    ("teleport", "No such command 'teleport'"),
    ("import toy-city --period month --out x", "week"),
    ("fit [bold]no --out x", r"\[bold\]no: expected"),
    *((f"test model synthetic --out x --plot {name}", r"\.png") for name in ("k.gif", "k", "k.parquet", "deep/k.jpeg")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_careless_use_is_refused_and_leaves_nothing(here, line, message):
    before = files(here)
    said = refused(*line.split())
    assert re.search(message, " ".join(said.replace("│", "").split()), flags=re.DOTALL), said
    assert files(here) == before


@pytest.mark.usefixtures("copied")
def test_what_is_refused_after_noise_was_drawn_leaves_what_it_spent():
    line = "colocate city/train --out x --epsilon-friendship 100 --colocations 999999"
    assert "a pair of friends and an instant each; found 999999" in refused(*line.split())
    assert [path.name for path in Path().glob("x*")] == ["x.ledger.jsonl"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("city/train/traces.parquet", b"damaged"),
        ("city/train/places.parquet", b""),
        ("city/train/time_grid.json", b"{}"),
        ("model/model.json", b"{}"),
        ("model/parameters.npz", b""),
        ("model/users.parquet", b"damaged"),
        ("model/time_grid.json", b"damaged"),
    ],
)
def test_damaged_inputs_are_refused(copied, name, content):
    Path(name).write_bytes(content)
    line = "synthesize model --out x" if name.startswith("model") else "fit city/train --system uniform --out x"
    assert "Error:" in refused(*line.split())
    assert not Path("x").exists()


def test_nothing_passed(copied):
    # Every trace of this model passes with a k up to the number of its users, and fails with a larger one.
    assert "passes the test by construction" in works("test", "model", "synthetic", "--k", 2, "--out", "all")
    text = works("test", "model", "synthetic", "--k", 999, "--out", "none")
    assert "by construction" not in text
    assert "0 of 64 traces passed (k = 999, eta = 1, a factor of e^1 = 2.72); verdicts in none" in text
    assert "No trace may be released" in text
    assert "at least one trace that passed; found none" in refused(
        "release", "synthetic", "none", "--out", "r", "--key", "k"
    )
    assert not (copied / "r").exists()
    assert not (copied / "k").exists()


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("city", "import toy-city --users 30 --out city --overwrite"),
        ("model", "fit city/train --system sgd --out model --overwrite"),
        ("synthetic", "synthesize model --out synthetic --overwrite"),
        ("verdicts", "test model synthetic --out verdicts --overwrite"),
        ("released", "release synthetic verdicts --out released --key key --overwrite"),
        ("key", "release synthetic verdicts --out released --key key --overwrite"),
    ],
)
def test_what_a_user_keeps_in_an_output_is_never_deleted(folder, line):
    """`import --overwrite` deleted the model and the traces that were put beside train and test."""
    for name in ("notes.txt", "deep/er/notes.txt"):
        Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        Path(folder, name).write_text("mine")
        before = files(Path())
        assert re.search(r"also .*notes\.txt.*Nothing was changed", refused(*line.split()))
        assert files(Path()) == before
        Path(folder, name).unlink()
    shutil.rmtree(Path(folder, "deep"))
    works(*line.split())
    assert not list(Path().rglob(".*"))


@pytest.mark.usefixtures("copied")
def test_an_import_never_replaces_the_file_that_it_reads():
    checkins = ["import", "checkins", "city/train/traces.parquet", "--out", "city", "--overwrite"]
    before = files(Path())
    assert "a folder apart from the input" in refused(*checkins)
    assert files(Path()) == before


def test_one_fit_at_a_time_writes_a_model(copied):
    fit = ["fit", "city/train", "--system", "uniform", "--out", "m"]
    # A killed fit leaves these; the second belongs to a model of another name.
    for name in ("m", "another"):
        Path(f"..{name}.checkpoint.npz.partial-0a1b2c3d").touch()
    with exclusive_use(".m.checkpoint.lock"):
        assert f"process {os.getpid()}" in refused(*fit)
        assert len(list(copied.glob("..*.partial-*"))) == 2
    works(*fit)
    assert [path.name for path in copied.glob("..*")] == ["..another.checkpoint.npz.partial-0a1b2c3d"]
    assert not list(copied.glob("*.lock"))


def test_the_checkpoint_of_another_fit_is_told(copied):
    np.savez(".m.checkpoint.npz", fingerprint="of other settings")
    said = refused("fit", "city/train", "--system", "ppmtf", "--out", "m")
    assert re.search(r"\.m\.checkpoint\.npz: expected the checkpoint of this run; found one of other .*settings", said)
    assert "Delete it to start anew, or give another name" in said


@pytest.mark.slow
def test_a_stopped_fit_goes_on(copied, monkeypatch):
    settings = [word for setting in ("n_sweeps=3", "zeros=weighted", "rank=2") for word in ("--set", setting)]
    fit = ["fit", "city/train", "--system", "ppmtf", *settings, "--seed", "3", "--out", "m"]

    def full_disk(self, folder, **_):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(FittedModel, "save", full_disk)
        assert "m: No space left on device. Check permissions and free space" in refused(*fit)
    assert Path(".m.checkpoint.npz").exists()
    works(*fit)
    works(*fit[:-1], "unbroken")
    assert files(Path("m")) == files(Path("unbroken"))
    assert not Path(".m.checkpoint.npz").exists()


# What the system does to us


FAULTS = [
    (OSError(errno.EACCES, "Permission denied", "x"), "x: Permission denied. Check permissions"),
    (OSError("pipe burst"), "pipe burst. Check permissions"),
    (MemoryError("8 TiB"), r"not enough memory \(8 TiB\).*lower rank"),
    (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 8 TiB"), "not enough memory"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=[repr(fault) for fault, _ in FAULTS])
def test_faults_of_the_machine_are_no_traceback(here, monkeypatch, fault, message):
    def fail(*_, **__):
        raise fault

    monkeypatch.setattr(steps, "synthesize_in_parts", fail)
    assert re.search(message, refused("synthesize", "model", "--out", "x"))


def test_faults_of_our_own_are_shown_in_full(here, monkeypatch):
    monkeypatch.setattr(steps, "synthesize_in_parts", lambda *_, **__: 1 / 0)
    assert isinstance(call("synthesize", "model", "--out", "x").exception, ZeroDivisionError)


def test_full_disk_leaves_nothing(copied):
    before = files(copied)
    for line in (
        "import toy-city --users 30 --out x",
        "fit city/train --system uniform --out model --overwrite",
        "synthesize model --out synthetic --overwrite",
        "test model synthetic --k 2 --out verdicts --overwrite",
        "release synthetic verdicts --out released --key key --overwrite",
    ):
        with parquet_fails():
            said = refused(*line.split())
        assert "No space left on device" in said
        assert "free space" in said
    assert files(copied) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_write_protection_is_told_before_the_work(copied):
    copied.chmod(0o500)
    try:
        assert "which is write-protected" in refused("fit", "city/train", "--out", "x")
    finally:
        copied.chmod(0o700)


def test_stopped_by_hand(copied):
    before = files(copied)
    with parquet_fails(KeyboardInterrupt()):
        result = call("synthesize", "model", "--out", "x")
    assert result.exit_code == 130
    assert result.stderr == "Stopped. Nothing was kept.\n"
    assert files(copied) == before


def test_a_table_is_shown_though_its_json_cannot_be_written(here, monkeypatch):
    def full_disk(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(releasing, "write_text", full_disk)
    result = call("evaluate", "synthetic", *REAL, "--no-attacks", "--json", "m.json")
    assert result.exit_code == 1
    assert "TP-TV" in result.stdout
    assert "m.json: No space left on device" in result.stderr


def test_few_traces_that_passed_are_no_fair_sample(capsys):
    for n_passed, warned in ((0, False), (5, True), (36, False), (144, False)):
        warn_of_few(n_passed, 144)
        assert ("not representative" in capsys.readouterr().out) == warned


def test_what_helps_where_no_trace_passed():
    """A smoother model does not, where fewer users are counted than have to be found."""
    assert "10 users are needed, but only 9 are counted; lower k" in releasing._way_out(PrivacyTestSettings(k=10), 8)
    assert "ask more verifiers" in releasing._way_out(PrivacyTestSettings(k=10, n_verifiers=8), 8)
    for settings in (PrivacyTestSettings(k=9), PrivacyTestSettings(k=10, noise_epsilon=1.0)):
        assert "learn a smoother model" in releasing._way_out(settings, 8)


def test_sglt_is_tested_and_released_by_the_same_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    works("import", "toy-city", "--users", 40, "--places", 12, "--days", 1, "--seed", 0, "--out", "gaps")
    works("fit", "gaps/train", "--system", "uniform", "--seed", 0, "--out", "whole", "--quiet")
    # SGLT needs traces without gaps.
    works("complete", "whole", "gaps/train", "--how", "random", "--seed", 0, "--out", "train", "--quiet")
    works("fit", "train", "--system", "sglt", "--seed", 0, "--out", "model", "--quiet")
    works("synthesize", "model", "--seed", 0, "--out", "synthetic", "--quiet")
    said = works("test", "model", "synthetic", "--k", 2, "--max-intersection", 0.3, "--out", "verdicts")
    assert "of 32 traces passed (k = 2, max_semantic_difference = 0.1" in said
    assert "max_intersection = 0.3" in said
    said = works("release", "synthetic", "verdicts", "--min-users-per-place", 1, "--out", "released", "--key", "key")
    assert "can be handed to anyone" in said
    page = Path("released/PRIVACY.txt").read_text()
    assert page.index("is a copy") < page.index("WHAT THEY DO NOT PROTECT") < page.index("From whom a trace was made")
    # Options of the other test are refused, in both directions.
    assert "found 'eta'" in call("test", "model", "synthetic", "--eta", 2, "--out", "x").stderr
    other = call("test", "whole", "synthetic", "--max-intersection", 0.3, "--out", "x")
    assert "found 'max_intersection'" in other.stderr
    works("evaluate", "released", "--key", "key", "--train", "train", "--test", "gaps/test", "--no-attacks")
