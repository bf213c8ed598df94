"""Learn, synthesize, test and attack privacy-preserving location traces.

Workflow: `Traces` -> `fit` -> `synthesize` -> `plausible_deniability_test` -> `plan_release` -> `evaluate`.

The public names are listed in `__init__.pyi`. Each is imported on first use, because importing JAX is slow.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("ppmtf_jax")
