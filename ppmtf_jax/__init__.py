"""Learn, synthesize, test and attack privacy-preserving location traces.

The line: `Traces` -> `fit` -> `synthesize` -> `plausible_deniability_test` -> `make_release` -> `evaluate`.
"""

from importlib.metadata import version

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.evaluation.evaluation import Evaluation, EvaluationSettings, evaluate
from ppmtf_jax.jobs.compare import CompareSettings, compare
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings, plausible_deniability_test
from ppmtf_jax.privacy.release import ReleaseSettings, make_release, save_release
from ppmtf_jax.runtime.devices import use_all_cores
from ppmtf_jax.synthesizers.completion import CompletionSettings, complete
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.ppmtf import PPMTFSettings
from ppmtf_jax.synthesizers.sgd import SGDSettings
from ppmtf_jax.synthesizers.synthesis import SynthesisSettings, fit, synthesize

__version__ = version("ppmtf_jax")

__all__ = [
    "CompareSettings",
    "CompletionSettings",
    "Evaluation",
    "EvaluationSettings",
    "FittedModel",
    "InputError",
    "NumericalError",
    "PPMTFSettings",
    "PlaceTable",
    "PrivacyTestSettings",
    "ReleaseSettings",
    "SGDSettings",
    "SynthesisSettings",
    "TimeGrid",
    "Traces",
    "compare",
    "complete",
    "evaluate",
    "fit",
    "make_release",
    "plausible_deniability_test",
    "read_checkins",
    "save_release",
    "synthesize",
    "toy_city",
    "use_all_cores",
]
