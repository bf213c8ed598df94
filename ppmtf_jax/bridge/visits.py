"""Old name of `counts`, until all of the folder is renamed."""

from ppmtf_jax.bridge.counts import *  # noqa: F403
