"""ITF: each count tensor factorized on its own (Murakami et al. 2021, App. E). PPMTF's unshared twin."""

from __future__ import annotations

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.gibbs.kernel import Coupling
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.synthesizers.ppmtf import PPMTFSettings, claims, fit_chains
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

UNSHARED = Coupling(
    (("transitions", ("user", "place", "next_place")), ("visits", ("visit_user", "visit_place", "slot")))
)


def fit_trace_model(
    train: Traces, settings: PPMTFSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> MetropolisHastings:
    """As PPMTF, with user and place factors of their own for the visits."""
    return fit_chains(train, UNSHARED, settings, seed, progress, checkpoints)


SYNTHESIZERS.register(
    Synthesizer(
        "itf",
        "PPMTF's twin with nothing shared: each count tensor factorized on its own (App. E)",
        PPMTFSettings,
        fit_trace_model,
        MetropolisHastings,
        claims,
    )
)
