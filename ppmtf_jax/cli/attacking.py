"""Commands that attack traces: `ppmtf attack reidentify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ppmtf_jax.attacks.audit import Linkage, ReidentificationSettings
from ppmtf_jax.attacks.splits import RehearsalSettings
from ppmtf_jax.cli.console import console, plain_table, tell
from ppmtf_jax.cli.group import FriendlyGroup
from ppmtf_jax.cli.options import STEPS, Quiet, example, with_settings
from ppmtf_jax.jobs.attack import ReidentificationReport, attack_identity
from ppmtf_jax.streams import check_seed

Real = Annotated[Path, typer.Argument(metavar="TRACES", help="Trace set of real users: what the attacker may know.")]
Released = Annotated[
    Path | None,
    typer.Option(
        "--released", metavar="TRACES", help="Attack these, synthetic or a release, knowing all the real ones."
    ),
]
Key = Annotated[Path | None, typer.Option("--key", metavar="KEY", help="Key of the release.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file too.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curves. PNG, SVG or PDF.")]
AttackSeed = Annotated[
    int, typer.Option("--seed", metavar="N", callback=check_seed, help="The same seed gives the same numbers.")
]
Replace = Annotated[bool, typer.Option("--overwrite", help="Replace earlier files of this command.")]


def add_to(app: typer.Typer) -> None:
    """Add `attack` to the commands."""
    group = typer.Typer(cls=FriendlyGroup, no_args_is_help=True, rich_markup_mode="markdown", callback=lambda: None)
    group.command(epilog=example("ppmtf attack reidentify city/train --estimator ml --estimator 'tf rank=8'"))(
        reidentify
    )
    app.add_typer(
        group,
        name="attack",
        help="Attack traces, real or synthetic: what do they give away?",
        epilog=example("ppmtf attack reidentify city/train"),
        rich_help_panel=STEPS,
    )


@with_settings(RehearsalSettings, into="rehearsal")
@with_settings(ReidentificationSettings)
def reidentify(
    traces: Real,
    settings: ReidentificationSettings,
    rehearsal: RehearsalSettings,
    released: Released = None,
    key: Key = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator",
            metavar="'NAME SETTING=VALUE ...'",
            help="How the attacker learns users' moves, with settings if wanted; several times. By default all there "
            "are.",
        ),
    ] = None,
    json_file: Json = None,
    plot: Plot = None,
    seed: AttackSeed = 0,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Tell whose traces these are, as an attacker would.

    Of real traces alone the attacker knows the first part of some users' (--known-share), and is handed the rest
    without names, among the traces of strangers. Of synthetic traces (--released) she knows all the real ones. Every
    way to learn users' moves is tried, and the strongest stands first.
    """
    attack_identity(
        traces,
        released=released,
        key=key,
        estimators=estimator or None,
        settings=settings,
        rehearsal=rehearsal,
        seed=seed,
        json_file=json_file,
        picture=plot,
        show=_show_identity,
        say=tell if not quiet else lambda _: None,
        overwrite=overwrite,
        progress=not quiet,
    )


def _show_identity(report: ReidentificationReport) -> None:
    strongest = report.attacks[0]
    console.print(_identity_table(report))
    tell(
        f"{report.n_targets} target users, {report.n_strangers} strangers. Strongest attack on these traces, chosen by "
        f"these numbers: {strongest.title.lower()} ({strongest.estimator})."
    )
    if report.n_left_out:
        tell(f"{report.n_left_out} chosen target users had one piece only, and are strangers.")
    low = strongest.each.auc_interval[0]
    if low > 0.5:
        tell(f"Traces give their users away: the area under the curve is above a guess (at least {low:.2f}).")


def _identity_table(report: ReidentificationReport) -> Table:
    n_targets = report.attacks[0].each.n_targets
    caption = (
        "AUC: how often a user's own trace looks more like hers than somebody else's; 0.5 is a guess. 95 %: interval "
        f"over users. Found: share of own traces that are found with 1 % and 0.1 % false alarms. Right user: of all "
        f"{n_targets}; by chance {1 / n_targets:.2%}."
    )
    table = plain_table("Re-identification", caption)
    table.add_column("Attack")
    table.add_column("Traces of a user")
    for heading in ("AUC", "95 %", "Found at 1 %", "at 0.1 %", "Right user"):
        table.add_column(heading, justify="right")
    for attack in report.attacks:
        table.add_row(attack.estimator, "single", *_cells(attack.each))
        table.add_row("", "together", *_cells(attack.combined))
    return table


def _cells(linkage: Linkage) -> list[str]:
    low, high = linkage.auc_interval
    found = [f"{linkage.true_positive_rate[rate]:.1%}" for rate in (0.01, 0.001)]
    return [f"{linkage.auc:.3f}", f"{low:.2f}-{high:.2f}", *found, f"{linkage.accuracy:.1%}"]
