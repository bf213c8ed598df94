"""How attacked traces were made, so that shadow models can be made like them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ppmtf_jax.attacks.membership.shadow_models import MOST_ATTACKED, N_SHADOWS, ShadowModelSettings
from ppmtf_jax.privacy.limits import MAX_ETA
from ppmtf_jax.privacy.own_test import settings_kind
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS


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
    if generator.get("system") not in SYNTHESIZERS:
        return None
    if "guarantee" in statement:
        return ShadowModelSettings(generator["system"], generator.get("settings", {}), None, n_shadows)
    if "k" not in parameters:
        return None
    kind = settings_kind(generator["system"])
    known = {field.name: parameters[field.name] for field in fields(kind) if field.name in parameters}
    if known.get("n_verifiers") == "all":
        known["n_verifiers"] = None
    if known.get("eta", 0) > MAX_ETA:
        # The data holder allowed it, and the attacker does the same.
        known["allow_large_eta"] = True
    return ShadowModelSettings(generator["system"], generator.get("settings", {}), known, n_shadows)


def shadows_like(
    statement: Mapping[str, Any] | None,
    model: FittedModel | None,
    *,
    n_shadows: int = N_SHADOWS,
    n_attacked: int = MOST_ATTACKED,
) -> tuple[ShadowModelSettings | None, str]:
    """Settings of shadow models for synthetic traces; or None, and the reason as the end of a sentence.

    `statement` of a release: how its traces were made and tested. Without it, the traces are the model's, untested.
    """
    if statement is not None:
        settings = shadows_of_release(statement, n_shadows)
        if settings is None:
            return None, "because the statement of the release does not name the model and its settings"
    elif model is not None:
        settings = ShadowModelSettings(model.system, n_shadows=n_shadows)
    else:
        return None, "because the model that made these traces is not known"
    if model is not None:
        # A statement has the names of files in the settings, but not their folders.
        settings = replace(settings, system_settings=model.settings_found())
    return replace(settings, n_attacked=n_attacked), ""
