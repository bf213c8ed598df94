"""The step that attacks traces: who is in them, and what that shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppmtf_jax.attacks.audit import ReidentificationSettings, Reidentified, reidentification_attacks
from ppmtf_jax.attacks.splits import Rehearsal, RehearsalSettings, rehearse, targets_of
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.release import RELEASE, load_with_key
from ppmtf_jax.runtime.files import check_output_file, write_text
from ppmtf_jax.runtime.folders import read_marker

REPORT = "ppmtf attack"

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
    _check_outputs(json_file, picture, overwrite)
    real = Traces.load(traces, progress=progress)
    attacked = _load_released(released, key, real, progress)
    made = (
        rehearse(real, split, seed=seed) if attacked is None else targets_of(real, attacked, split.n_targets, seed=seed)
    )
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


def _load_released(released: PathLike | None, key: PathLike | None, train: Traces, progress: bool) -> Traces | None:
    if released is None and key is not None:
        raise InputError("key", [Problem("a release beside its key", "none")])
    if released is None:
        return None
    marker = read_marker(released) if Path(released).is_dir() else None
    is_release = marker is not None and marker.kind == RELEASE
    if is_release != (key is not None):
        found = "no key" if is_release else "a key, and traces that are no release"
        way_out = "The key tells whose the traces are, without which no attack can be judged"
        raise InputError(str(released), [Problem("a release with its key, or other traces", found, way_out=way_out)])
    return Traces.load(released, progress=progress) if key is None else load_with_key(released, key, train)


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
