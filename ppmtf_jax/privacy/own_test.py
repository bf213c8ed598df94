"""The privacy test of each system: plausible deniability, or for SGLT its own test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppmtf_jax.data.trace_set import Origin, read_parquet
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings, plausible_deniability_test
from ppmtf_jax.privacy.semantic_test import SemanticTestSettings, semantic_privacy_test
from ppmtf_jax.privacy.verdicts import VERDICTS_FILE, Verdicts, stored_fields
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import VERDICTS, marked
from ppmtf_jax.settings import chosen_settings
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims
from ppmtf_jax.synthesizers.systems.sglt import SGLT
from ppmtf_jax.trace_models.base import LikelihoodModel

TestSettings = PrivacyTestSettings | SemanticTestSettings
# What a folder of verdicts has as tables, by name.
_STORED_AS_TABLES = {"claims": Claims, "origin": Origin, "seed": Seed}


def settings_kind(system: str) -> type[PrivacyTestSettings] | type[SemanticTestSettings]:
    """Class of the settings of a system's test."""
    return SemanticTestSettings if issubclass(SYNTHESIZERS[system].model, SGLT) else PrivacyTestSettings


def settings_for(system: str, settings: TestSettings) -> TestSettings:
    """The settings if they are of the system's test; otherwise the defaults of its test with the same k.

    Examples
    --------
    >>> settings_for("sglt", PrivacyTestSettings(k=5))  # doctest: +ELLIPSIS
    SemanticTestSettings(k=5, max_semantic_difference=0.1, ...)
    """
    kind = settings_kind(system)
    return settings if isinstance(settings, kind) else kind(k=settings.k)


def can_be_tested(model: FittedModel) -> bool:
    """Whether there is a privacy test of the model's traces."""
    return not model.of_nobody and isinstance(model.trace_model, LikelihoodModel | SGLT)


def privacy_test(
    model: FittedModel,
    synthetic: Traces,
    settings: TestSettings | Mapping[str, Any] | None = None,
    *,
    seed: int | Seed | None = None,
    progress: bool = False,
    **named_settings: Any,
) -> Verdicts:
    """Make the privacy test of the model's system: see `plausible_deniability_test` and `semantic_privacy_test`.

    `synthetic`: traces that `synthesize` made from this model, or a part of them. Raises `InputError`: there is no test
    of such traces, the model did not make them, or the settings are those of another test.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.synthesizers.synthesis import fit, synthesize
    >>> model = fit(toy_city(n_users=20, seed=0).traces, "uniform")
    >>> privacy_test(model, synthesize(model), k=20)
    Plausible deniability test: 20 of 20 traces passed
      model      uniform
      settings   k = 20, eta = 1, a factor of e^1 = 2.72
      verifiers  20 users
    """
    chosen = chosen_settings(settings_kind(model.system), settings, named_settings, "test")
    if isinstance(chosen, SemanticTestSettings):
        return semantic_privacy_test(model, synthetic, chosen)
    return plausible_deniability_test(model, synthetic, chosen, seed=seed, progress=progress)


def load_verdicts(folder: PathLike) -> Verdicts:
    """Read a folder of verdicts of any test; `InputError` if it is something else, or was changed."""
    about = marked(folder, VERDICTS, way_out="Make it with `ppmtf test`").about
    kind = {each.test: each for each in (PrivacyTestSettings, SemanticTestSettings)}.get(about.get("test"))
    names = stored_fields(kind is PrivacyTestSettings)
    if absent := [name for name in ("test", *names) if name not in about]:
        found, way_out = f"no {', '.join(absent)}", "Test the traces again"
        raise InputError(str(folder), [Problem("verdicts of this version", found, way_out=way_out)])
    if kind is None:
        raise InputError(str(folder), [Problem("verdicts of a known test", f"those of {about['test']!r}")])
    read = {name: about[name] for name in names}
    for name, of in ({"settings": kind} | _STORED_AS_TABLES).items():
        if name in read:
            # JSON has lists for tuples.
            values = {key: tuple(value) if isinstance(value, list) else value for key, value in read[name].items()}
            read[name] = of(**values)
    if read["users_per_place"] is not None:
        read["users_per_place"] = np.array(read["users_per_place"])
    return Verdicts(**read, table=read_parquet(Path(folder) / VERDICTS_FILE))
