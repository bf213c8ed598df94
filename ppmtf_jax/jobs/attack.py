"""How attacked traces were made, so that shadow models can be made like them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ppmtf_jax.attacks.membership.shadow_models import MAX_ATTACKED, N_SHADOWS, ShadowModelSettings
from ppmtf_jax.privacy.limits import MAX_ETA
from ppmtf_jax.privacy.own_test import settings_kind
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS


def shadows_like(
    statement: Mapping[str, Any] | None,
    model: FittedModel | None,
    *,
    n_shadows: int = N_SHADOWS,
    n_attacked: int = MAX_ATTACKED,
) -> tuple[ShadowModelSettings | None, str]:
    """Settings of shadow models for synthetic traces; or None, and the reason as the end of a sentence.

    `statement` of a release: how its traces were made and tested. Without it, the traces are the model's, untested.

    Examples
    --------
    >>> statement = {"generator": {"system": "sgd", "settings": {"n_copied": 1}}, "parameters": {"k": 5, "eta": 1.0}}
    >>> shadows_like(statement, None)[0].test_settings
    {'k': 5, 'eta': 1.0}

    A release whose large eta was allowed is attacked like any other:

    >>> statement["parameters"]["eta"] = 5.0
    >>> shadows_like(statement, None)[0].test_settings["allow_large_eta"]
    True
    """
    if statement is not None:
        generator, parameters = (statement.get(name, {}) for name in ("generator", "parameters"))
        system, is_of_nobody = generator.get("system"), "guarantee" in statement
        if system not in SYNTHESIZERS or not (is_of_nobody or "k" in parameters):
            return None, "because the statement of the release does not name the model and its settings"
        test = None if is_of_nobody else _test_of(system, parameters)
        settings = ShadowModelSettings(system, generator.get("settings", {}), test, n_shadows)
    elif model is not None:
        settings = ShadowModelSettings(model.system, n_shadows=n_shadows)
    else:
        return None, "because the model that made these traces is not known"
    if model is not None:
        # A statement has the names of files in the settings, but not their folders.
        settings = replace(settings, system_settings=model.settings_found())
    return replace(settings, n_attacked=n_attacked), ""


def _test_of(system: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a privacy test that a statement tells."""
    names = [field.name for field in fields(settings_kind(system))]
    known = {name: parameters[name] for name in names if name in parameters}
    if known.get("n_verifiers") == "all":
        known["n_verifiers"] = None
    if known.get("eta", 0) > MAX_ETA:
        # The data holder allowed it, and the attacker does the same.
        known["allow_large_eta"] = True
    return known
