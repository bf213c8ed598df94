"""ITF: PPMTF with each count tensor factorized separately (Murakami et al. 2021, App. E)."""

from __future__ import annotations

from functools import partial

from ppmtf_jax.gibbs.kernel import Coupling
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings, claims, fit_chains
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

TITLE = "PPMTF without shared factors: each count tensor factorized separately (App. E)"

# Separate user and place factors for the visits.
UNSHARED = Coupling(
    (("transitions", ("user", "place", "next_place")), ("visits", ("visit_user", "visit_place", "slot")))
)


SYNTHESIZERS.register(
    Synthesizer(
        "itf", TITLE, PPMTFSettings, partial(fit_chains, UNSHARED), MetropolisHastings, claims, on_all_devices=True
    )
)
