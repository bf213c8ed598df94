"""Every threshold by which the library calls something safe enough or too risky, each in one place.

Statements, lights and refusals read them here, so that they cannot disagree.
"""

from __future__ import annotations

MIN_ETA, MAX_ETA = 1e-6, 3.0
"""Widths of a bin of log-likelihood that the privacy test takes. Below, bins have too large numbers, and above, a trace
may be e^3 = 20 times as probable for one "plausible" user as for another."""
