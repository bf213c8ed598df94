"""Learn, synthesize, test and attack privacy-preserving location traces.

The line: `Traces` -> `fit` -> `synthesize` -> `plausible_deniability_test` -> `evaluate`.
"""

from importlib.metadata import version

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.evaluation.evaluation import evaluate
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.runtime.devices import use_all_cores
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.ppmtf import PPMTFSettings
from ppmtf_jax.synthesizers.sgd import SGDSettings
from ppmtf_jax.synthesizers.synthesis import fit, synthesize

__version__ = version("ppmtf_jax")

__all__ = [
    "FittedModel",
    "InputError",
    "NumericalError",
    "PPMTFSettings",
    "PlaceTable",
    "SGDSettings",
    "TimeGrid",
    "Traces",
    "evaluate",
    "fit",
    "plausible_deniability_test",
    "read_checkins",
    "synthesize",
    "toy_city",
    "use_all_cores",
]
