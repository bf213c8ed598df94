"""Learn, synthesize, test and attack privacy-preserving location traces.

The line: `Traces` -> `fit` -> `synthesize` -> `plausible_deniability_test` -> `make_release` -> `evaluate`.

What can be imported from here stands in `__init__.pyi`, and is loaded when it is asked for: JAX takes its time.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("ppmtf_jax")
