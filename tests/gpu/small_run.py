"""Every system fitted, sampled and tested on the platform of this process: python -m tests.gpu.small_run OUT.npz.

Another argument plants a bug: normal draws that are 2 % too wide, as a platform with a bad generator might make them.
"""

from __future__ import annotations

import sys

import jax
import numpy as np

from ppmtf_jax import fit, synthesize, toy_city
from ppmtf_jax.privacy.own_test import can_be_tested, privacy_test
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

FACTORS = {"rank": 4, "n_sweeps": 5, "zeros": "weighted", "n_zeros": 100}
# Little work, and noise that a seed repeats. A system without an entry runs with its defaults.
SETTINGS = {
    "ppmtf": FACTORS,
    "itf": FACTORS,
    "ppmtf_plus": FACTORS,
    "sgd": {"n_copied": 1},
    "tpm": {"noise": "seeded"},
    "private": {"noise": "seeded", "public_places": True},
    "bridge": {"memory": "anchors"},
}


def outcome(system: str) -> dict[str, np.ndarray]:
    """What a system learned, made and was judged: arrays by name."""
    train = toy_city(n_users=150, n_places=20, n_days=1, missing=0.0, seed=0).traces
    model = fit(train, system, SETTINGS.get(system), seed=1)
    traces = synthesize(model, seed=2)
    found = {f"model {name}": np.asarray(array) for name, array in model.trace_model.to_arrays().items()}
    found["place"] = traces.place
    if can_be_tested(model):
        verdicts = privacy_test(model, traces, None, seed=3)
        found["passed"] = np.asarray(verdicts.passed)
        if "log_likelihood" in verdicts.table:
            found["log_likelihood"] = verdicts.table["log_likelihood"].to_numpy()
    return {f"{system}/{name}": array for name, array in found.items()}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        normal = jax.random.normal
        jax.random.normal = lambda *given, **named: 1.02 * normal(*given, **named)
    systems = SYNTHESIZERS if len(sys.argv) < 3 else ["ppmtf"]
    arrays = {"platform": np.array(jax.default_backend())}
    for each in systems:
        arrays |= outcome(each)
    np.savez(sys.argv[1], **arrays)
