"""The steps that attack traces: whose they are, who was in the data, and whether they are copies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ppmtf_jax.attacks.alarms import find_alarms, unicity
from ppmtf_jax.attacks.audit import ReidentificationSettings, Reidentified, reidentification_attacks
from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.attacks.membership.scores import MembershipScores, MembershipSummary
from ppmtf_jax.attacks.membership.shadow_models import N_SHADOWS, ShadowModelSettings, infer_by_shadow_models
from ppmtf_jax.attacks.splits import Rehearsal, RehearsalSettings, rehearse, targets_of
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.jobs.steps import load_released
from ppmtf_jax.privacy.limits import MAX_ETA
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.statement import STATEMENT_JSON
from ppmtf_jax.runtime.files import check_output_file, remove, write_text
from ppmtf_jax.settings import parse_choice
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

REPORT = "ppmtf attack"
MEMBERSHIP_DEFAULTS = ("likelihood_ratio", "density_ratio", "density_ratio density=kernel")
KEY_NEEDED = "Without the key it is not known whose the traces are, and so not whether the attack is right"

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class ReidentificationReport:
    """Outcome of re-identification attacks.

    Parameters
    ----------
    attacks : list of Reidentified
        The strongest first.
    n_targets : int
        Users of whom the attacker knows traces.
    n_strangers : int
        Users of attacked traces of whom she knows nothing.
    n_left_out : int
        Chosen target users with too few traces, attacked as strangers.
    settings : dict
    """

    attacks: list[Reidentified]
    n_targets: int
    n_strangers: int
    n_left_out: int
    settings: dict[str, Any]

    def to_json(self) -> str:
        """All numbers, without the curves."""
        content = {name: value for name, value in vars(self).items() if name != "attacks"}
        content |= {"made_by": REPORT, "attacks": [attack.numbers() for attack in self.attacks]}
        return json.dumps(content, indent=1) + "\n"


def attack_identity(
    traces: PathLike,
    *,
    released: PathLike | None = None,
    key: PathLike | None = None,
    estimators: Sequence[str] | None = None,
    settings: ReidentificationSettings | None = None,
    rehearsal: RehearsalSettings | None = None,
    seed: int = 0,
    json_file: PathLike | None = None,
    picture: PathLike | None = None,
    show: Callable[[ReidentificationReport], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    overwrite: bool = False,
    progress: bool = False,
) -> ReidentificationReport:
    """Attack the identity of traces by all estimators.

    Parameters
    ----------
    traces : path
        Trace set of real users. Without `released`, the attacker knows the first pieces of some of them, and attacks
        the later ones and those of strangers.
    released : path, optional
        Synthetic traces made from these users, or a release. The attacker then knows all of `traces`.
    key : path, optional
        Of the release.
    estimators, settings
        See `reidentification_attacks`.
    rehearsal : RehearsalSettings, optional
        Of which only `n_targets` matters where there is `released`.
    json_file, picture : paths, optional
        For the numbers, and for the curves.
    show : function of a ReidentificationReport
        Is called before files are written: a full disk must not cost the numbers.
    """
    chosen, split = settings or ReidentificationSettings(), rehearsal or RehearsalSettings()
    if released is None and key is not None:
        raise InputError("key", [Problem("a release beside its key", "none")])
    _check_outputs(json_file, picture, overwrite)
    real = Traces.load(traces, progress=progress)
    if released is None:
        made = rehearse(real, split, seed=seed)
    else:
        attacked = load_released(released, real, key, key_needed=KEY_NEEDED, progress=progress)
        made = targets_of(real, attacked, split.n_targets, seed=seed)
    attacks = reidentification_attacks(
        made.known, made.anonymized, estimators, chosen, seed=seed, progress=progress, say=say
    )
    report = _report(made, attacks, asdict(chosen) | asdict(split) | {"seed": seed})
    show(report)
    if json_file is not None:
        write_text(json_file, report.to_json())
    if picture is not None:
        _draw(report, picture)
    return report


@dataclass(frozen=True, eq=False)
class MembershipReport:
    """Outcome of membership attacks.

    Parameters
    ----------
    attacks : dict of str to MembershipScores
        By name, with settings that were given; in falling order of the area under the curve.
    summaries : dict of str to MembershipSummary
        Of the same names.
    settings : dict
    """

    attacks: dict[str, MembershipScores]
    summaries: dict[str, MembershipSummary]
    settings: dict[str, Any]

    def to_json(self) -> str:
        """All numbers, without the curves.

        They name the users who are most exposed: keep them secret.
        """
        found = {name: summary.to_dict() for name, summary in self.summaries.items()}
        return (
            json.dumps({"made_by": REPORT, "settings": self.settings, "attacks": found}, indent=1, default=str) + "\n"
        )


def attack_membership(
    synthetic: PathLike,
    train: PathLike,
    test: PathLike,
    *,
    key: PathLike | None = None,
    model: PathLike | None = None,
    attacks: Sequence[str] | None = None,
    n_shadows: int = N_SHADOWS,
    fast: bool = False,
    seed: int = 0,
    json_file: PathLike | None = None,
    picture: PathLike | None = None,
    show: Callable[[MembershipReport], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    overwrite: bool = False,
    progress: bool = False,
) -> MembershipReport:
    """Tell who was in the training data, by several attacks.

    Parameters
    ----------
    synthetic : path
        Synthetic traces, or a release, whose statement says how it was made and tested.
    train, test : paths
        Trace sets of the training users, and of others.
    key : path, optional
        Of the release.
    model : path, optional
        That made the synthetic traces, all of them; a release needs none.
    attacks : sequence of str, optional
        Each its name, and settings if wanted. By default the likelihood ratio, the density ratio of both kinds, and
        shadow models wherever it is known how to make them. Where attacks are named, shadow models are learned only if
        a model is given.
    n_shadows : int
        How many shadow models are learned.
    fast : bool
        Leave shadow models out, which take longest and find most.
    json_file, picture : paths, optional
        For the numbers, which name the users who are most exposed and which only you can read, and for the curves.
        Beside the former lies what is known of finished shadow models until all is done: if the attack is stopped, the
        same call goes on from it.

    Raises
    ------
    InputError
        The traces are neither a release nor made by the given model, attacks or settings are unknown, or what an
        attack refuses.
    """
    _check_outputs(json_file, picture, overwrite)
    training, testing = (Traces.load(folder, progress=progress) for folder in (train, test))
    released = load_released(synthetic, training, key, progress=progress)
    chosen = {text: parse_choice(text, MEMBERSHIP_ATTACKS) for text in dict.fromkeys(attacks or MEMBERSHIP_DEFAULTS)}
    shadows = None
    if not fast and (not attacks or model is not None):
        shadows = _shadows_like(synthetic, released, model, n_shadows, say)
    found = {}
    for name, (entry, settings) in chosen.items():
        say(f"{name}: scoring {training.n_users} training and {testing.n_users} other users")
        found[name] = infer_membership(released, training, testing, entry.name, settings, seed=seed, progress=progress)
    checkpoint = None if json_file is None else Path(json_file).with_name(f".{Path(json_file).name}.shadows.npz")
    if shadows is not None:
        how = {"seed": seed, "checkpoint": checkpoint, "progress": progress, "say": say}
        try:
            found[f"shadow_models system={shadows.system}"] = infer_by_shadow_models(
                released, training, testing, shadows, **how
            )
        except InputError as error:
            # No reason to lose what the other attacks found.
            say(f"shadow models, the strongest attack, are left out: {error}")
    ordered = dict(sorted(found.items(), key=lambda each: -each[1].roc.auc))
    summaries = {name: scores.summary(seed=seed) for name, scores in ordered.items()}
    report = MembershipReport(ordered, summaries, {"seed": seed})
    show(report)
    if json_file is not None:
        write_text(json_file, report.to_json())
    if checkpoint is not None:
        remove(checkpoint)
    if picture is not None:
        from ppmtf_jax.evaluation.plots import roc_curves, save_figure

        curves = {name: scores.roc for name, scores in ordered.items()}
        save_figure(roc_curves(curves, title="Membership inference", logarithmic=True), picture)
    return report


def shadows_of_release(statement: Mapping[str, Any], n_shadows: int = N_SHADOWS) -> ShadowModelSettings | None:
    """Shadow models that make and test traces like those of a release, or None if its statement does not say how.

    Examples
    --------
    >>> statement = {"generator": {"system": "sgd", "settings": {"n_copied": 1}}, "parameters": {"k": 5, "eta": 1.0}}
    >>> shadows_of_release(statement).test_settings
    {'k': 5, 'eta': 1.0}

    A release whose large eta was allowed is attacked like any other:

    >>> statement["parameters"]["eta"] = 5.0
    >>> shadows_of_release(statement).test_settings["allow_large_eta"]
    True
    """
    generator, parameters = (statement.get(name, {}) for name in ("generator", "parameters"))
    if generator.get("system") not in SYNTHESIZERS or "k" not in parameters:
        return None
    known = {field.name: parameters[field.name] for field in fields(PrivacyTestSettings) if field.name in parameters}
    if known.get("n_verifiers") == "all":
        known["n_verifiers"] = None
    if known.get("eta", 0) > MAX_ETA:
        # Whoever released them allowed it, and an attacker does the same.
        known["allow_large_eta"] = True
    return ShadowModelSettings(generator["system"], generator.get("settings", {}), known, n_shadows)


def _shadows_like(
    synthetic: PathLike, released: Traces, model: PathLike | None, n_shadows: int, say: Callable[[str], None]
) -> ShadowModelSettings | None:
    """How shadow models are made for traces. None, with a message on the reason, if it is not known."""
    if (Path(synthetic) / STATEMENT_JSON).is_file():
        found = shadows_of_release(json.loads((Path(synthetic) / STATEMENT_JSON).read_text("utf-8")), n_shadows)
        if found is None:
            say("shadow models, the strongest attack, are left out: the model that made the release is not known here")
        return found
    if model is None:
        say("shadow models, the strongest attack, are left out: give the model that made these traces (--model)")
        return None
    fitted = FittedModel.load(model)
    # Shadow models of another system would be compared with nothing.
    check_origin(fitted, released)
    return ShadowModelSettings(fitted.system, fitted.settings, None, n_shadows)


def attack_by_points(
    traces: PathLike,
    *,
    train: PathLike | None = None,
    test: PathLike | None = None,
    key: PathLike | None = None,
    seed: int = 0,
    json_file: PathLike | None = None,
    show: Callable[[dict[str, Any]], None] = lambda _: None,
    overwrite: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Tell how many people are known by a few points and, if training data is given, whether traces are copies.

    Parameters
    ----------
    traces : path
        Real or synthetic traces, or a release.
    train, test : paths, optional
        Both or none: trace sets of the training users and of others.
    key : path, optional
        Of the release: the traces of a user are then hers, in place of one user's each.
    json_file : path, optional
    """
    if (train is None) != (test is None):
        raise InputError("unicity", [Problem("training and test traces, or neither", "one of them")])
    if key is not None and train is None:
        raise InputError("unicity", [Problem("training and test traces beside a key", "none")])
    _check_outputs(json_file, None, overwrite)
    if train is None or test is None:
        found: dict[str, Any] = {"unicity": unicity(Traces.load(traces, progress=progress), seed=seed).tolist()}
    else:
        training, testing = (Traces.load(folder, progress=progress) for folder in (train, test))
        attacked = load_released(traces, training, key, progress=progress)
        found = find_alarms(attacked, training, testing, seed=seed).to_dict()
    show(found)
    if json_file is not None:
        write_text(json_file, json.dumps({"made_by": REPORT, "seed": seed, **found}, indent=1) + "\n")
    return found


def is_attack_report(path: Path) -> bool:
    """Whether a file holds what an attack found, written by this program."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("made_by") == REPORT


def _check_outputs(json_file: PathLike | None, picture: PathLike | None, overwrite: bool) -> None:
    if json_file is not None:
        check_output_file(json_file, overwrite=overwrite, is_ours=is_attack_report, what="an earlier report of attacks")
    if picture is not None:
        from ppmtf_jax.evaluation.plots import check_picture_name, is_own_picture

        check_picture_name(picture)
        check_output_file(picture, overwrite=overwrite, is_ours=is_own_picture, what="an earlier picture")


def _report(made: Rehearsal, attacks: list[Reidentified], settings: dict[str, Any]) -> ReidentificationReport:
    n_of_targets = len(set(made.known.user_ids.tolist()) & set(made.anonymized.user_ids.tolist()))
    n_strangers = made.anonymized.n_users - n_of_targets
    return ReidentificationReport(attacks, made.known.n_users, n_strangers, made.n_left_out, settings)


def _draw(report: ReidentificationReport, picture: PathLike) -> None:
    from ppmtf_jax.evaluation.plots import roc_curves, save_figure

    curves = {}
    for attack in report.attacks:
        name, *given = attack.estimator.split()
        name = " ".join([name.upper(), *given])
        curves |= {name: attack.each.roc, f"{name}*": attack.combined.roc}
    title = "Re-identification (*: all traces of a user together)"
    save_figure(roc_curves(curves, title=title), picture)
