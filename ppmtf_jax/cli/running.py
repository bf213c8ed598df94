"""Commands that do all steps at once: run, demo, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.table import Table

from ppmtf_jax.cli.console import console, tell, warn_of_few
from ppmtf_jax.cli.group import LATE_HELP, with_example
from ppmtf_jax.cli.options import Engine, Quiet, Train, argument, option, with_settings
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.evaluation.results import TableOrList, fits, format_table
from ppmtf_jax.jobs.compare import ALL, COMPARED, PASSED, TABLE_FILE, Compared, CompareSettings, compare_systems
from ppmtf_jax.jobs.config import TABLES, JobConfig
from ppmtf_jax.jobs.runner import run as run_job
from ppmtf_jax.privacy.semantic_test import SemanticTestSettings
from ppmtf_jax.privacy.statements import NOT_PRIVATE, NOT_PROVEN
from ppmtf_jax.runtime.engine import use_engine
from ppmtf_jax.settings import describe_settings
from ppmtf_jax.streams import check_seed
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS


def _run_help() -> str:
    sources = {f'`[import]` source="{name}"': entry.settings for name, entry in DATA_SETS.items()}
    tables = sources | {f"`[{name}]`": kind for name, kind in TABLES.items()}
    tables["`[test]` of sglt"] = SemanticTestSettings
    listed = "\n".join(f"- {name}: {describe_settings(kind)}" for name, kind in tables.items())
    return f"""Run all steps of a job file: import, fit, synthesize, test, release, evaluate, draw.

Finished steps are skipped unless their inputs or settings changed; a job that was stopped continues when it is called
again. A job writes two folders: `release`, which can be handed to anyone, and `private`, which only you can read.

The smallest file has two lines, `[import]` and `source = "toy-city"`. All settings of a file, with their defaults:

- before the tables: seed (drawn by default, and kept in `private`), out='name of the file'
{listed}
- `[fit]`: system={DEFAULT_SYSTEM}, and the system's settings: see `ppmtf fit --help`
- `[[compare]]`, any number of times: another system with its settings, which is measured beside the first
"""


LATE_HELP["run"] = _run_help


@with_example("ppmtf run job.toml")
def run(
    config: Annotated[Path, argument("JOB.TOML", "The job file.")], quiet: Quiet = False, engine: Engine = "threads"
) -> None:
    """Run all steps of a job file."""
    with use_engine(engine):
        _run_and_show(JobConfig.load(config), not quiet)


@with_example("ppmtf demo --out demo")
def demo(
    out: Annotated[Path, option("--out FOLDER", "Where to write all results.")] = Path("demo"),
    seed: Annotated[int, option("--seed N", "The same seed gives the same city and traces.", callback=check_seed)] = 0,
    quiet: Quiet = False,
) -> None:
    """Run all steps on a simulated city: a table, pictures, and traces that passed the privacy test."""
    content = {
        "out": str(out),
        "seed": seed,
        "import": {"source": "toy-city", "n_users": 2500},
        # The toy city has many homes, and each user has one, so it needs a higher rank than the published data.
        "compare": [{"system": "ppmtf", "rank": 32, "zeros": "weighted", "n_zeros": 300}],
    }
    _run_and_show(JobConfig.from_mapping(content, Path(), default_out="demo", subject="demo"), not quiet)


def _compare_help() -> str:
    return f"""Compare synthesizers on the same data: utility, privacy, the share that passes the test, time and memory.

Each synthesizer is fitted with several seeds. Finished work is kept: if the comparison was stopped, the same command
continues it, and a command with more synthesizers or seeds adds to it. The folder gets `compare.csv` with a row for
each number. Only you can read it, because traces that did not pass the test are measured, too.

Synthesizers: {", ".join(SYNTHESIZERS)}; see `ppmtf fit --help` for their settings.
"""


LATE_HELP["compare"] = _compare_help


@with_example("ppmtf compare city/train city/test --out compared")
@with_settings(CompareSettings)
def compare(
    train: Train,
    test: Annotated[Path, argument("TEST", "Trace set of the test users, whose data no model saw.")],
    out: Annotated[Path, option("--out FOLDER", "A new folder, or the folder of an earlier comparison.")],
    settings: CompareSettings,
    system: Annotated[
        list[str] | None,
        option(
            "--system 'NAME SETTING=VALUE ...'",
            f"A synthesizer, and its settings; can be given several times. By default {', '.join(COMPARED)}.",
        ),
    ] = None,
    passed: Annotated[
        bool, option("--passed", "Show the numbers for traces that passed the test, not for all.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Compare synthesizers on the same data."""
    found = compare_systems(train, test, out, system or COMPARED, settings, progress=not quiet, say=tell)
    which = PASSED if passed else ALL
    what = "traces that passed the privacy test" if passed else "all traces, before the privacy test"
    console.print(_comparison_table(found, which, f"The numbers are for {what}."))
    for name, reason in found.refused.items():
        tell(f"{name} was left out: {reason}")
    tell(f"All numbers: {out / TABLE_FILE}")


def _comparison_table(found: Compared, traces: str, note: str) -> Table | TableOrList:
    """Means over seeds, with standard deviations if the terminal is wide enough."""
    mean, spread = found.mean(traces), found.spread(traces)
    table = format_table(mean, note=f"{note} Means over seeds ± standard deviation.", spread=spread)
    return table if fits(table, console, console.options) else TableOrList(mean, note=f"{note} Means over seeds.")


def _run_and_show(config: JobConfig, progress: bool) -> None:
    result = run_job(config, progress=progress, say=tell)
    note = "" if result.n_released == result.n_traces else "All: the synthetic traces before the privacy test. "
    if config.compared:
        note += f"{', '.join(config.compared).capitalize()}: traces of another system that passed the privacy test."
    console.print(TableOrList(result.evaluation, note=note))
    if result.n_released:
        passed = f"{result.n_released} of {result.n_traces} traces passed the privacy test."
        tell(f"{result.n_released} traces of nobody. {result.guarantee}" if result.guarantee else passed)
        warn_of_few(result.n_released, result.n_traces)
        whom = "For anyone"
        if result.guarantee in (NOT_PRIVATE, NOT_PROVEN):
            whom = "For experiments only" if result.guarantee == NOT_PRIVATE else "For those whom you choose"
        tell(f"{whom}: {result.out / 'release'} (read PRIVACY.txt first). Only for you: {result.out / 'private'}")
    else:
        tell(f"None of the {result.n_traces} traces passed the privacy test. Lower k, or raise eta.")
    tell(f"Pictures: {', '.join(path.name for path in result.pictures)} in {result.out / 'private' / 'pictures'}")
