"""Commands that attack traces: `ppmtf attack reidentify`, `membership` and `unicity`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from ppmtf_jax.attacks.audit import (
    RehearsalSettings,
    ReidentificationSettings,
    rehearse,
    reidentification_attacks,
    targets_of,
)
from ppmtf_jax.attacks.copies import check_copies, unicity
from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.attacks.membership.shadow_models import N_SHADOWS, PEOPLE_OF_SHADOWS, infer_by_shadow_models
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.cli.console import console, plain_table, tell
from ppmtf_jax.cli.group import example, group_of_commands
from ppmtf_jax.cli.options import Json, Quiet, TestOption, TrainOption, argument, check_picture, option, with_settings
from ppmtf_jax.data.description import percent
from ppmtf_jax.data.stored_traces import open_traces
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.evaluation import sample_of_users
from ppmtf_jax.evaluation.report import page
from ppmtf_jax.evaluation.results import SYNTHETIC, TEST, TRAINING, sample_remark
from ppmtf_jax.jobs.attack import shadows_like
from ppmtf_jax.jobs.steps import open_released
from ppmtf_jax.privacy.limits import Judgement, worst
from ppmtf_jax.privacy.release import statement_of
from ppmtf_jax.runtime.files import check_output_file, has_mark, remove, write_text
from ppmtf_jax.settings import parse_choice
from ppmtf_jax.streams import check_seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin

Real = Annotated[Path, argument("TRACES", "Trace set of real users: what the attacker may know.")]
Released = Annotated[
    Path | None, option("--released TRACES", "Attack these synthetic or released traces, knowing all real traces.")
]
Key = Annotated[Path | None, option("--key KEY", "Key of the release.")]
Plot = Annotated[Path | None, option("--plot FILE", "Draw the curves. PNG, SVG or PDF.")]
AttackSeed = Annotated[int, option("--seed N", "The same seed gives the same numbers.", callback=check_seed)]
Replace = Annotated[bool, option("--overwrite", "Replace earlier files of this command.")]

REPORT = "ppmtf attack"
is_attack_report = partial(has_mark, mark=rb'(?s)\A\{.*\n "made_by": "%b"' % REPORT.encode())
MEMBERSHIP_DEFAULTS = ("likelihood_ratio", "density_ratio", "density_ratio density=kernel", "nearest")
STRONGEST = "Strongest attack on these traces, chosen by these numbers"
POINTS = "Identified by a few points"
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
    group_map: Annotated[
        Path | None, option("--group-map FILE", "Draw the users of groups of places on maps (gstf). Keep it private.")
    ] = None,
    seed: AttackSeed = 0,
    overwrite: Replace = False,
    quiet: Quiet = False,
) -> None:
    """Find out whose traces these are, as an attacker would.

    With real traces alone, the attacker knows the first part of some users' traces (--known-share). They get the rest
    without names, among the traces of strangers. With synthetic traces (--released), they know all real traces. All
    estimators of users' moves are tried, and the strongest is listed first. Of a set of more than 250,000 users, a
    random sample of 250,000 is attacked.
    """
    if released is None and key is not None:
        raise InputError("key", [Problem("a release beside its key", "none")])
    _check_outputs(json_file, plot, overwrite)
    check_picture(group_map, overwrite=overwrite)
    if group_map is not None and estimator and not any(each.split()[:1] == ["gstf"] for each in estimator):
        raise InputError("map of groups", [Problem("the estimator gstf, which has groups", ", ".join(estimator))])
    if group_map is not None and group_map == plot:
        raise InputError("map of groups", [Problem("a file of its own", "that of --plot")])
    key_needed = "Give it with --key: without the key, it is not known from which user a trace was made"
    loaded, sampled = _load({TRAINING: traces}, released, key, not quiet, key_needed)
    if group_map is not None:
        from ppmtf_jax.evaluation.plots.persons import require_coordinates

        require_coordinates("map of groups", loaded[TRAINING].places)
    if released is None:
        sets = rehearse(loaded[TRAINING], rehearsal, seed=seed)
    else:
        sets = targets_of(loaded[TRAINING], loaded[SYNTHETIC], rehearsal.n_targets, seed=seed)
    how = {"seed": seed, "progress": not quiet, "say": _say(quiet)}
    attacks = reidentification_attacks(sets.known, sets.anonymized, estimator or None, settings, **how)
    n_attacked_targets = len(set(sets.known.user_ids.tolist()) & set(sets.anonymized.user_ids.tolist()))
    n_strangers = sets.anonymized.n_users - n_attacked_targets
    _show("Re-identification", page.identity_table(attacks))
    strongest = f"{attacks[0].title.lower()} ({attacks[0].estimator})"
    tell(f"{sets.known.n_users} target users, {n_strangers} strangers. {STRONGEST}: {strongest}.")
    tracked = [attack.hidden.judgement for attack in attacks if attack.hidden is not None]
    if tracked:
        _show("De-obfuscation", page.hidden_table(attacks))
    if sets.n_left_out:
        tell(f"{sets.n_left_out} chosen target users had only one piece of a trace, so they count as strangers.")
    rules = attacks[0].each.open_world[0.01]
    tell(
        "At the lowest threshold that at most 1 % of the pairs of a trace and another person reach (here "
        f"{percent(rules.pair_false, 1)}), a target's trace has "
        f"{rules.n_candidates:.1f} candidates ({rules.expected_candidates:.1f} expected), and the best one is right "
        f"for {percent(rules.named_right, 1)} and wrong for {percent(rules.named_wrong, 1)} of the targets' traces."
    )
    _tell_worst([each for attack in attacks for of in (attack.each, attack.combined) for each in of.judgements()])
    if tracked:
        _tell_worst(tracked)
    content = {"n_targets": sets.known.n_users, "n_strangers": n_strangers, "n_left_out": sets.n_left_out}
    content |= {"settings": asdict(settings) | asdict(rehearsal) | {"seed": seed}, **sampled, "made_by": REPORT}
    _write(json_file, content | {"attacks": [each.numbers() for each in attacks]})
    curves = {}
    for each in attacks:
        name, *given = each.estimator.split()
        name = " ".join([name.upper(), *given])
        curves |= {name: each.each.roc, f"{name}*": each.combined.roc}
    _draw(curves, "Re-identification (*: all traces of a user together)", plot)
    grouped = [each.matrices.counts for each in attacks if getattr(each.matrices.counts, "group", None) is not None]
    if group_map is not None and not grouped:
        tell("There is no map of groups, because gstf was left out.")
    elif group_map is not None:
        from ppmtf_jax.evaluation.plots import group_maps, save_figure

        save_figure(group_maps(sets.known, grouped[0]), group_map)


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

    The attacker knows the traces of some people and sees the synthetic traces. They score each person by how much the
    synthetic traces look as if this person's data had been used. The strongest attacks learn models like the one that
    made the traces, from random halves of the people, and from the traces themselves, as an attacker would who knows
    nobody else. The command says how long this takes. With --json, the same
    command continues if it was stopped. The file of --json names the users who are exposed: only you can read it.
    Of a set of more than 250,000 users, a random sample of 250,000 is attacked.
    """
    _check_outputs(json_file, plot, overwrite)
    say, how = _say(quiet), {"seed": seed, "progress": not quiet}
    loaded, sampled = _load({TRAINING: train, TEST: test}, synthetic, key, not quiet)
    released, training, testing = (loaded[name] for name in (SYNTHETIC, TRAINING, TEST))
    chosen = {text: parse_choice(text, MEMBERSHIP_ATTACKS) for text in dict.fromkeys(attack or MEMBERSHIP_DEFAULTS)}
    how_made = None
    # Where attacks are named, shadow models take part only if a model is named too.
    if not fast and (not attack or model is not None):
        fitted = None if model is None else FittedModel.load(model)
        statement = statement_of(synthetic) or None
        if fitted is not None and statement is None:
            # Shadow models of another system would say nothing.
            check_origin(fitted, released)
        how_made, why_not = shadows_like(statement, fitted, n_shadows=shadows)
        if how_made is None:
            say(f"shadow models, the strongest attack, are left out {why_not} (see --model)")
    found = {}
    for name, (entry, settings) in chosen.items():
        say(f"{name}: scoring {training.n_users} training and {testing.n_users} other users")
        found[name] = infer_membership(released, training, testing, entry.name, settings, **how)
    # Finished shadow models lie in these files until all is done, and the same command continues from them.
    checkpoints: list[Path] = []
    for made in [] if how_made is None else [replace(how_made, people=each) for each in PEOPLE_OF_SHADOWS]:
        kept = None if json_file is None else json_file.with_name(f".{json_file.name}.shadows.{made.people}.npz")
        checkpoints += [] if kept is None else [kept]
        try:
            scores = infer_by_shadow_models(released, training, testing, made, checkpoint=kept, say=say, **how)
            found[f"shadow_models system={made.system} people={made.people}"] = scores
        except InputError as error:
            # Keep the results of the other attacks.
            say(f"shadow models of {made.people} people, the strongest attack, are left out: {error}")
    ordered = dict(sorted(found.items(), key=lambda each: -each[1].roc.auc))
    summaries = {name: scores.summary(seed=seed, n_attacks=len(ordered)) for name, scores in ordered.items()}
    _show("Membership inference", page.membership_table(summaries))
    tell(f"{STRONGEST}: {next(iter(summaries))}.")
    _tell_worst([judgement for each in summaries.values() for judgement in each.judgements()])
    attacks = {name: summary.to_dict() for name, summary in summaries.items()}
    _write(json_file, {"made_by": REPORT, "settings": {"seed": seed}, **sampled, "attacks": attacks})
    for checkpoint in checkpoints:
        remove(checkpoint)
    _draw({name: scores.roc for name, scores in ordered.items()}, "Membership inference", plot, logarithmic=True)


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

    With --train and --test, the traces of training users are looked for in the synthetic traces: as a whole, and in
    runs of places. What is found is shown beside the same numbers for people whose data was not used. Of a set of more
    than 250,000 users, a random sample of 250,000 is measured.
    """
    if (train is None) != (test is None):
        raise InputError("unicity", [Problem("training and test traces, or neither", "one of them")])
    if key is not None and train is None:
        raise InputError("unicity", [Problem("training and test traces beside a key", "none")])
    _check_outputs(json_file, None, overwrite)
    if train is None or test is None:
        loaded, sampled = _load({TRAINING: traces}, None, None, not quiet)
        shares = unicity(loaded[TRAINING], seed=seed)
        found: dict[str, Any] = {"unicity": shares.tolist()}
        _show(POINTS, page.unicity_table({"These": shares}))
    else:
        loaded, sampled = _load({TRAINING: train, TEST: test}, traces, key, not quiet)
        copies = check_copies(loaded[SYNTHETIC], loaded[TRAINING], loaded[TEST], seed=seed)
        found = copies.to_dict()
        shares_of = {"Synthetic": copies.unicity, "Training": copies.training_unicity}
        _show(POINTS, page.unicity_table(shares_of, copies.crowd))
        _show("Copies", page.copies_table(copies))
        _tell_worst([copies.judgement()])
    _write(json_file, {"made_by": REPORT, "seed": seed, **sampled, **found})


def _load(
    real: Mapping[str, Path], synthetic: Path | None, key: Path | None, progress: bool, key_needed: str | None = None
) -> tuple[dict[str, Traces], dict[str, dict[str, int]]]:
    """The sets in memory, on the same places, of large ones the sample of `evaluate`; and what a report says of it."""
    opened = {name: open_traces(folder, progress=progress) for name, folder in real.items()}
    if synthetic is not None:
        opened[SYNTHETIC] = open_released(synthetic, opened[TRAINING], key, key_needed=key_needed, progress=progress)
    loaded, sampled = sample_of_users(opened)
    if sampled:
        tell(sample_remark(sampled))
    return loaded, {"sampled": sampled} if sampled else {}


def _check_outputs(json_file: Path | None, plot: Path | None, overwrite: bool) -> None:
    if json_file is not None:
        check_output_file(json_file, overwrite=overwrite, is_ours=is_attack_report, what="an earlier report of attacks")
    check_picture(plot, overwrite=overwrite)


def _say(quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else tell


def _write(json_file: Path | None, content: dict[str, Any]) -> None:
    """Write the numbers; called after they are shown, so that a full disk loses none."""
    if json_file is not None:
        write_text(json_file, json.dumps(content, indent=1, default=str) + "\n")


def _draw(curves: dict[str, Roc], title: str, plot: Path | None, *, logarithmic: bool = False) -> None:
    if plot is not None:
        from ppmtf_jax.evaluation.plots import roc_curves, save_figure

        save_figure(roc_curves(curves, title=title, logarithmic=logarithmic), plot)


def _show(title: str, table: page.Table) -> None:
    console.print(plain_table(title, table.headings, table.rows, f"{table.caption}.", n_left=table.n_words))


def _tell_worst(judgements: list[Judgement]) -> None:
    """Print the status that the report gives to the number that decides."""
    decisive = worst(judgements)
    tell(f"{decisive.status.symbol} {decisive.status.word}: {decisive.text}")
