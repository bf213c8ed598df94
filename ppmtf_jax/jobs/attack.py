"""Job steps that attack traces: re-identification, membership inference, unicity and copies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from ppmtf_jax.attacks.audit import ReidentificationSettings, Reidentified, reidentification_attacks
from ppmtf_jax.attacks.copies import check_copies
from ppmtf_jax.attacks.membership.base import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.attacks.membership.scores import MembershipScores, MembershipSummary
from ppmtf_jax.attacks.membership.shadow_models import N_SHADOWS, ShadowModelSettings, infer_by_shadow_models
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.attacks.splits import RehearsalSettings, rehearse, targets_of
from ppmtf_jax.attacks.unicity import unicity
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.jobs.steps import load_released
from ppmtf_jax.privacy.limits import MAX_ETA
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.runtime.files import PathLike, check_output_file, has_mark, remove, write_text
from ppmtf_jax.runtime.folders import STATEMENT_JSON
from ppmtf_jax.settings import parse_choice
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

REPORT = "ppmtf attack"
MEMBERSHIP_DEFAULTS = ("likelihood_ratio", "density_ratio", "density_ratio density=kernel")
is_attack_report = partial(has_mark, mark=rb'(?s)\A\{.*\n "made_by": "%b"' % REPORT.encode())
KEY_NEEDED = "Without the key, nobody knows who made which trace, and so whether the attack is right"


@dataclass(frozen=True, eq=False)
class ReidentificationReport:
    """Result of re-identification attacks; the strongest comes first.

    Target users are those whose traces the attacker knows; strangers are other users of attacked traces. `n_left_out`
    drawn target users have too few traces and count as strangers.
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
    """Attack traces by re-identification with all estimators.

    Without `released`, the attacker knows the first pieces of some users' traces, and attacks the later pieces and
    those of strangers. With `released` (synthetic traces made from these users, or a release with its key), the
    attacker knows all of `traces`; then only `n_targets` of `rehearsal` is used. `json_file` gets the numbers,
    `picture` the curves. `show` is called before files are written: if the disk is full, the numbers are not lost.
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
    n_attacked_targets = len(set(made.known.user_ids.tolist()) & set(made.anonymized.user_ids.tolist()))
    report = ReidentificationReport(
        attacks,
        n_targets=made.known.n_users,
        n_strangers=made.anonymized.n_users - n_attacked_targets,
        n_left_out=made.n_left_out,
        settings=asdict(chosen) | asdict(split) | {"seed": seed},
    )
    show(report)
    if json_file is not None:
        write_text(json_file, report.to_json())
    if picture is not None:
        curves = {}
        for attack in report.attacks:
            name, *given = attack.estimator.split()
            name = " ".join([name.upper(), *given])
            curves |= {name: attack.each.roc, f"{name}*": attack.combined.roc}
        _draw(curves, "Re-identification (*: all traces of a user together)", picture)
    return report


@dataclass(frozen=True, eq=False)
class MembershipReport:
    """Result of membership attacks: scores and summaries by attack name, in falling order of the AUC."""

    attacks: dict[str, MembershipScores]
    summaries: dict[str, MembershipSummary]
    settings: dict[str, Any]

    def to_json(self) -> str:
        """All numbers, without the curves; keep them secret, because they name the users who are most exposed."""
        found = {name: summary.to_dict() for name, summary in self.summaries.items()}
        content = {"made_by": REPORT, "settings": self.settings, "attacks": found}
        return json.dumps(content, indent=1, default=str) + "\n"


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
    """Attack traces by membership inference, to find who was in the training data.

    `synthetic`: synthetic traces, or a release; its statement says how it was made and tested. `train`, `test`: trace
    sets of the training users, and of others. `model`: the model that made the synthetic traces; a release needs none.
    `attacks`: names, each with settings if wanted. By default the likelihood ratio, the density ratio of both kinds,
    and shadow models if it is known how the traces were made. If attacks are named, shadow models are trained only if a
    model is given. `fast`: leave out shadow models, which take longest and find most. `json_file`: file for the
    numbers. It names the users who are most exposed; only you can read it. The results of finished shadow models lie
    beside it until all is done: the same call continues from them if the attack is stopped.
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
            # Keep the results of the other attacks.
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
        _draw({name: scores.roc for name, scores in ordered.items()}, "Membership inference", picture, logarithmic=True)
    return report


def shadows_of_release(statement: Mapping[str, Any], n_shadows: int = N_SHADOWS) -> ShadowModelSettings | None:
    """Settings of shadow models like the model of a release; None if the release does not name the model.

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
        # The data holder allowed it, and the attacker does the same.
        known["allow_large_eta"] = True
    return ShadowModelSettings(generator["system"], generator.get("settings", {}), known, n_shadows)


def _shadows_like(
    synthetic: PathLike, released: Traces, model: PathLike | None, n_shadows: int, say: Callable[[str], None]
) -> ShadowModelSettings | None:
    """Settings of shadow models for traces; None, with a message, if it is not known how the traces were made."""
    if (Path(synthetic) / STATEMENT_JSON).is_file():
        found = shadows_of_release(json.loads((Path(synthetic) / STATEMENT_JSON).read_text("utf-8")), n_shadows)
        if found is None:
            say("shadow models, the strongest attack, are left out: the model that made the release is not known here")
        return found
    if model is None:
        say("shadow models, the strongest attack, are left out: give the model that made these traces (--model)")
        return None
    fitted = FittedModel.load(model)
    # Shadow models of another system would say nothing.
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
    """Measure unicity and, if training data are given, whether the traces are copies.

    Training data are `train` and `test`, trace sets of the training users and of others: both or none. With the key of
    a release, its traces belong to their users; without it each trace is its own user.
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
        found = check_copies(attacked, training, testing, seed=seed).to_dict()
    show(found)
    if json_file is not None:
        write_text(json_file, json.dumps({"made_by": REPORT, "seed": seed, **found}, indent=1) + "\n")
    return found


def _check_outputs(json_file: PathLike | None, picture: PathLike | None, overwrite: bool) -> None:
    if json_file is not None:
        check_output_file(json_file, overwrite=overwrite, is_ours=is_attack_report, what="an earlier report of attacks")
    if picture is not None:
        from ppmtf_jax.evaluation.plots import check_picture_name, is_own_picture

        check_picture_name(picture)
        check_output_file(picture, overwrite=overwrite, is_ours=is_own_picture, what="an earlier picture")


def _draw(curves: dict[str, Roc], title: str, picture: PathLike, *, logarithmic: bool = False) -> None:
    from ppmtf_jax.evaluation.plots import roc_curves, save_figure

    save_figure(roc_curves(curves, title=title, logarithmic=logarithmic), picture)
