"""Convergence of the Gibbs chains of a fitted model: `gibbs.diagnostics` with its settings and traces."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any
from ppmtf_jax.gibbs.diagnostics import Diagnosis, diagnose
from ppmtf_jax.gibbs.kernel import SHARED
from ppmtf_jax.gibbs.tensors import count_tensors
from ppmtf_jax.settings import build_settings
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.systems.itf import UNSHARED
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings

COUPLINGS = {"ppmtf": SHARED, "itf": UNSHARED}


def diagnose_model(
    model: FittedModel,
    train: Traces,
    *,
    n_sweeps: int | None = None,
    n_chains: int = 4,
    seed: int,
    progress: bool = False,
) -> Diagnosis:
    """Run several new chains with a model's settings on its training traces, and test whether they agree.

    The model's own draw is not used: one chain alone cannot show whether it has converged. Some of the counts are held
    out, so the chains see slightly less data than the model. `n_sweeps`: of each chain, at least 20; by default as many
    as the model's. The rest is as for `diagnose`. Raises `InputError`: the model was not fitted by Gibbs sampling, or
    the traces are not its training traces.
    """
    if model.system not in COUPLINGS:
        way_out = (
            f"You need not do anything: {model.system} is not fitted by Gibbs sampling, so it has no sweeps to judge"
        )
        if model.of_nobody and SYNTHESIZERS[model.system].settings is PPMTFSettings:
            way_out = "Fit ppmtf with the same settings: this model knows neither its seed nor its users"
        raise InputError("model", [Problem(f"a model of {' or '.join(COUPLINGS)}", model.system, way_out=way_out)])
    if (inference := model.settings.get("inference", "gibbs")) != "gibbs":
        raise InputError("model", [Problem("a model of inference=gibbs, whose chains can be repeated", inference)])
    _check_trained_on(model, train)
    settings = build_settings(PPMTFSettings, model.settings_found(), "settings of the model")
    return diagnose(
        count_tensors(train, settings.trimming(), seed=model.seed),
        COUPLINGS[model.system],
        settings.gibbs(),
        zeros=settings.zeros,
        n_zeros=settings.n_zeros,
        n_sweeps=settings.n_sweeps if n_sweeps is None else n_sweeps,
        n_chains=n_chains,
        seed=seed,
        progress=progress,
    )


def _check_trained_on(model: FittedModel, train: Traces) -> None:
    problems: list[Problem | str] = []
    for name, of_model, of_train in (
        ("users", model.user_ids, train.user_ids),
        ("places", model.places.ids, train.places.ids),
    ):
        if not np.array_equal(of_model, of_train):
            others = pd.Index(of_train).difference(pd.Index(of_model), sort=False)
            found = f"{len(of_train)} {name}, {len(others)} of them unknown to it"
            problems.append(Problem(f"the model's {len(of_model)} {name}", found, 0, first_examples(others.tolist())))
    if model.time_grid != train.time_grid.one_period():
        problems.append(Problem("the model's time grid", "another"))
    raise_any("traces that the model was fitted to", problems)
