"""Old name of `user_bounds`, until all of the folder is renamed."""

from ppmtf_jax.bridge.user_bounds import *  # noqa: F403
