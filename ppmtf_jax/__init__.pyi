from .data.places import PlaceTable
from .data.time_grid import TimeGrid
from .data.traces import Traces
from .datasets.checkins import read_checkins
from .datasets.toy_city import toy_city
from .errors import InputError, NumericalError
from .evaluation.evaluation import EvaluationSettings, evaluate
from .evaluation.results import Evaluation
from .jobs.compare import CompareSettings, compare
from .privacy.plausible_deniability import PrivacyTestSettings, plausible_deniability_test
from .privacy.release import write_release
from .privacy.release_plan import ReleaseSettings, plan_release
from .runtime.devices import use_all_cores
from .runtime.engine import use_engine
from .synthesizers.fitted_model import FittedModel
from .synthesizers.gaps import CompletionSettings, complete
from .synthesizers.synthesis import SynthesisSettings, fit, synthesize
from .synthesizers.systems.ppmtf import PPMTFSettings
from .synthesizers.systems.sgd import SGDSettings

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
    "plan_release",
    "plausible_deniability_test",
    "read_checkins",
    "synthesize",
    "toy_city",
    "use_all_cores",
    "use_engine",
    "write_release",
]
