"""Commands that attack traces: `ppmtf attack reidentify`, `membership` and `unicity`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from ppmtf_jax.attacks.audit import Linkage, ReidentificationSettings
from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS
from ppmtf_jax.attacks.membership.shadow_models import N_SHADOWS
from ppmtf_jax.attacks.splits import RehearsalSettings
from ppmtf_jax.cli.console import console, plain_table, tell
from ppmtf_jax.cli.group import example, group_of_commands
from ppmtf_jax.cli.options import Json, Quiet, TestOption, TrainOption, argument, option, with_settings
from ppmtf_jax.jobs.attack import (
    MEMBERSHIP_DEFAULTS,
    MembershipReport,
    ReidentificationReport,
    attack_by_points,
    attack_identity,
    attack_membership,
)
from ppmtf_jax.privacy.limits import Judgement, worst
from ppmtf_jax.streams import check_seed

Real = Annotated[Path, argument("TRACES", "Trace set of real users: what the attacker may know.")]
Released = Annotated[
    Path | None,
    option("--released TRACES", "Attack these synthetic or released traces, knowing all real traces."),
]
Key = Annotated[Path | None, option("--key KEY", "Key of the release.")]
Plot = Annotated[Path | None, option("--plot FILE", "Draw the curves. PNG, SVG or PDF.")]
AttackSeed = Annotated[int, option("--seed N", "The same seed gives the same numbers.", callback=check_seed)]
Replace = Annotated[bool, option("--overwrite", "Replace earlier files of this command.")]

COPIES = {
    "copied_run": "Longest run of events that a training trace has too",
    "nearest_share": "Share of events that the nearest training trace has too",
}
attack = group_of_commands("attack", example("ppmtf attack reidentify city/train"))


@attack.command(epilog=example("ppmtf attack reidentify city/train --estimator ml --estimator 'tf rank=8'"))
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
        option(
            "--estimator 'NAME SETTING=VALUE ...'",
            "How the attacker learns users' moves, and settings of this estimator. Can be given several times. By "
            "default, all estimators are tried.",
        ),
    ] = None,
    json_file: Json = None,
    plot: Plot = None,
    seed: AttackSeed = 0,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Find out whose traces these are, as an attacker would.

    With real traces alone, the attacker knows the first part of some users' traces (--known-share). She gets the rest
    without names, among the traces of strangers. With synthetic traces (--released), she knows all real traces. All
    estimators of users' moves are tried, and the strongest is listed first.
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


@attack.command(
    epilog=example("ppmtf attack membership release --train city/train --test city/test --json membership.json")
)
def membership(
    synthetic: Annotated[Path, argument("TRACES", "Synthetic traces, or a release.")],
    train: TrainOption,
    test: TestOption,
    key: Key = None,
    model: Annotated[
        Path | None,
        option(
            "--model MODEL", "The model that made the traces, for shadow models. A release itself says how it was made."
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        option(
            "--attack 'NAME SETTING=VALUE ...'",
            f"One of {', '.join(MEMBERSHIP_ATTACKS)}. Can be given several times. By default "
            f"{', '.join(MEMBERSHIP_DEFAULTS)}, and shadow models if it is known how the traces were made.",
        ),
    ] = None,
    shadows: Annotated[
        int, option("--shadows N", "How many shadow models to learn: an even number, at least 6.")
    ] = N_SHADOWS,
    fast: Annotated[bool, option("--fast", "Leave shadow models out: they take longest, and find most.")] = False,
    json_file: Json = None,
    plot: Plot = None,
    seed: AttackSeed = 0,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Find out who was in the training data.

    The attacker knows the traces of some people and sees the synthetic traces. She scores each person by how much the
    synthetic traces look as if this person's data had been used. The strongest attack learns models like the one that
    made the traces, from random halves of the people. It says how long this takes. With --json, it continues if it was
    stopped. The file of --json names the users who are most exposed: only you can read it.
    """
    attack_membership(
        synthetic,
        train,
        test,
        key=key,
        model=model,
        attacks=attack or None,
        n_shadows=shadows,
        fast=fast,
        seed=seed,
        json_file=json_file,
        picture=plot,
        show=_show_membership,
        say=tell if not quiet else lambda _: None,
        overwrite=overwrite,
        progress=not quiet,
    )


@attack.command("unicity", epilog=example("ppmtf attack unicity city/train"))
def few_points(
    traces: Annotated[Path, argument("TRACES", "Real or synthetic traces, or a release.")],
    train: Annotated[
        Path | None, option("--train TRAIN", "For synthetic traces: the traces they were made from.")
    ] = None,
    test: Annotated[
        Path | None, option("--test TEST", "For synthetic traces: traces of the test users, whose data was not used.")
    ] = None,
    key: Key = None,
    json_file: Json = None,
    seed: AttackSeed = 0,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Find out how many people a few points identify, and whether traces are copies.

    With --train and --test, synthetic traces are compared with the training traces: the longest run that was copied,
    and the nearest training trace. Both are shown beside the same numbers for people whose data was not used.
    """
    attack_by_points(
        traces,
        train=train,
        test=test,
        key=key,
        seed=seed,
        json_file=json_file,
        show=_show_points,
        overwrite=overwrite,
        progress=not quiet,
    )


def _show_membership(report: MembershipReport) -> None:
    first = next(iter(report.summaries.values()))
    caption = (
        f"{first.n_members} training and {first.n_others} other users. AUC: how often a training user scores higher "
        "than another user; 0.5 is a guess. 95 %: interval over users. Advantage: greatest difference between the true "
        "and the false positive rate, and its value by chance. Found: percentage of the training users found with 1 % "
        "and 0.1 % false alarms, and its 95 % interval, if there are enough others to know it."
    )
    rows = []
    for name, found in report.summaries.items():
        numbers = [f"{found.auc.value:.3f}", f"{found.auc.low:.2f}-{found.auc.high:.2f}"]
        numbers += [f"{found.advantage.value:.3f}", f"{found.chance:.3f}"]
        for rate, share in ((0.01, found.tpr_at_1_percent), (0.001, found.tpr_at_01_percent)):
            interval = f"{100 * share.value:.1f} ({100 * share.low:.0f}-{100 * share.high:.0f})"
            numbers.append(interval if found.n_others * rate >= 1 else "-")
        rows.append([name, *numbers])
    headings = ["Attack", "AUC", "95 %", "Advantage", "by chance", "Found at 1 %", "at 0.1 %"]
    console.print(plain_table("Membership inference", headings, rows, caption))
    strongest, found = next(iter(report.summaries.items()))
    tell(f"Strongest attack on these traces, chosen by these numbers: {strongest}.")
    _tell_worst([judgement for each in report.summaries.values() for judgement in each.judgements()])


def _tell_worst(judgements: list[Judgement]) -> None:
    """Print the light of the report for the number that decides."""
    decisive = worst(judgements)
    tell(f"{decisive.status.symbol} {decisive.status.word}: {decisive.text}")


def _show_points(found: Mapping[str, Any]) -> None:
    crowd = f", in crowds of {found['crowd']:,}" if "crowd" in found else ""
    caption = f"Share of users whom this number of known points tells from all others{crowd}."
    headings = [f"{number} point{'s' if number > 1 else ''}" for number in range(1, len(found["unicity"]) + 1)]
    rows = [
        [whose, *(f"{share:.1%}" for share in found[name])]
        for whose, name in (("these", "unicity"), ("training", "training_unicity"))
        if name in found
    ]
    console.print(plain_table("Identified by a few points", ["Traces", *headings], rows, caption))
    for name, what in COPIES.items():
        if name in found:
            of = found[name]
            tell(
                f"{what}: {of['mean']:.2f} on average, {of['held_out_mean']:.2f} for people whose data was not used. "
                f"{of['share_far']:.1%} of the traces are above 95 % of theirs."
            )


def _show_identity(report: ReidentificationReport) -> None:
    strongest = report.attacks[0]
    console.print(_identity_table(report))
    tell(
        f"{report.n_targets} target users, {report.n_strangers} strangers. Strongest attack on these traces, chosen by "
        f"these numbers: {strongest.title.lower()} ({strongest.estimator})."
    )
    if report.n_left_out:
        tell(f"{report.n_left_out} chosen target users had only one piece of a trace, so they count as strangers.")
    linkages = [linkage for attack in report.attacks for linkage in (attack.each, attack.combined)]
    _tell_worst([judgement for linkage in linkages for judgement in linkage.judgements()])


def _identity_table(report: ReidentificationReport) -> Table:
    n_targets = report.attacks[0].each.n_targets
    caption = (
        "AUC: how often a user's own trace looks more like hers than somebody else's trace; 0.5 is a guess. 95 %: "
        "interval over users. Found: share of a user's own traces that are found with 1 % and 0.1 % false alarms. "
        f"Right user: how often the attacker names her among all {n_targets}; by chance {1 / n_targets:.2%}."
    )
    headings = ["Attack", "Traces of a user", "AUC", "95 %", "Found at 1 %", "at 0.1 %", "Right user"]
    rows = []
    for attack in report.attacks:
        rows.append([attack.estimator, "single", *_cells(attack.each)])
        rows.append(["", "together", *_cells(attack.combined)])
    return plain_table("Re-identification", headings, rows, caption, n_left=2)


def _cells(linkage: Linkage) -> list[str]:
    low, high = linkage.auc_interval
    found = [f"{linkage.true_positive_rate[rate]:.1%}" for rate in (0.01, 0.001)]
    return [f"{linkage.auc:.3f}", f"{low:.2f}-{high:.2f}", *found, f"{linkage.accuracy:.1%}"]
