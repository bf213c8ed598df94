"""How attacked traces were made, so that shadow models can be made like them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from ppmtf_jax.attacks.membership.shadow_models import N_SHADOWS, ShadowModelSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.privacy.limits import MAX_ETA
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.release import statement_of
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.synthesizers.fitted_model import FittedModel, check_origin
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
    known = {field.name: parameters[field.name] for field in fields(PrivacyTestSettings) if field.name in parameters}
    if known.get("n_verifiers") == "all":
        known["n_verifiers"] = None
    if known.get("eta", 0) > MAX_ETA:
        # The data holder allowed it, and the attacker does the same.
        known["allow_large_eta"] = True
    return ShadowModelSettings(generator["system"], generator.get("settings", {}), known, n_shadows)


def shadows_like(
    synthetic: PathLike, released: Traces, model: PathLike | None, n_shadows: int, say: Callable[[str], None]
) -> ShadowModelSettings | None:
    """Settings of shadow models for traces; None, with a message, if it is not known how the traces were made."""
    if statement := statement_of(synthetic):
        found = shadows_of_release(statement, n_shadows)
        if found is None:
            say("shadow models, the strongest attack, are left out: the model that made the release is not known here")
        elif model is not None:
            # The statement of a release has the names of files in the settings, but not their folders.
            found = replace(found, system_settings=FittedModel.load(model).settings)
        return found
    if model is None:
        say("shadow models, the strongest attack, are left out: give the model that made these traces (--model)")
        return None
    fitted = FittedModel.load(model)
    # Shadow models of another system would say nothing.
    check_origin(fitted, released)
    return ShadowModelSettings(fitted.system, fitted.settings, None, n_shadows)
