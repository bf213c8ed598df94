"""Every threshold by which the library calls something safe enough or too risky, each in one place.

Statements, lights and refusals read them here, so that they cannot disagree.
"""

from __future__ import annotations

MIN_ETA, MAX_ETA = 1e-6, 3.0
"""Widths of a bin of log-likelihood that the privacy test takes. Below, numbers of bins are no longer exact; above, a
trace may be e^3 = 20 times as probable for one "plausible" user as for another."""

MIN_ETA_IN_SINGLE_PRECISION = 1e-3
"""The same for likelihoods in float32, which are rounded by about as much."""

MIN_USERS_PER_PLACE = 2
"""How many training users have to have been at each place of a release. A place of one is hers alone."""
