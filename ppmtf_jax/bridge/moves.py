"""Old name of parts of `attraction` and `counts`, until all of the folder is renamed."""

from ppmtf_jax.bridge.attraction import *  # noqa: F403
from ppmtf_jax.bridge.counts import *  # noqa: F403
