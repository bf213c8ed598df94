"""ITF: PPMTF with each count tensor factorized separately (Murakami et al. 2021, App. E)."""

from __future__ import annotations

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.gibbs.kernel import Coupling
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.synthesizers.ppmtf import PPMTFSettings, claims, fit_chains
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

TITLE = "PPMTF's twin with nothing shared: each count tensor factorized on its own (App. E)"

UNSHARED = Coupling(
    (("transitions", ("user", "place", "next_place")), ("visits", ("visit_user", "visit_place", "slot")))
)


def fit_trace_model(
    train: Traces, settings: PPMTFSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> MetropolisHastings:
    """Like PPMTF, with separate user and place factors for the visits."""
    return fit_chains(train, UNSHARED, settings, seed, progress, checkpoints)


SYNTHESIZERS.register(Synthesizer("itf", TITLE, PPMTFSettings, fit_trace_model, MetropolisHastings, claims))
