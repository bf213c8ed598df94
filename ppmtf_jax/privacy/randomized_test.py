"""The differential privacy of the randomized test (Bindschaedler, Shokri, Gunter, VLDB 2017, Theorem 1).

Mechanism: draw an input user at random from all n users, make a trace from this user, and release it if the number k'
of plausible users reaches k plus Laplace noise of scale 1 / e0; otherwise release nothing. Plausible users are those in
the same bin of probability, ((e^-eta)^(i+1), (e^-eta)^i], the input user included; the gamma of the paper is e^eta.
Neighbours are two data sets of at least k users, one of which has one additional user. Then for every whole t from 1 to
k - 1 and every set of traces Y,

    P(the trace of one is in Y) <= e^epsilon P(the trace of the other is in Y) + delta,
    epsilon = e0 + log(1 + e^eta / t),   delta = e^(-e0 (k - t)).

Proof. Let p_u(y) be the probability that user u's model makes y, c the number of the n users in a bin, and g(c) the
probability that the noise is at most c - k. A data set gives y with f(y) = 1/n sum over u of p_u(y) g(c of u's bin).
An additional user v, whose bin has c others with the probability S in all, changes the term S g(c) of her bin to
(S + p_v) g(c + 1), and 1/n to 1/(n + 1). For Laplace noise, discrete or not, g(c) <= g(c + 1) <= e^e0 g(c).

- With her, f'(y) <= e^epsilon f(y) if c >= t: p_v < e^eta S / c <= e^eta S / t, because no two probabilities in a bin
  differ by the factor e^eta. If c < t, S g(c + 1) <= e^e0 S g(c), and p_v g(c + 1) / (n + 1) is left over: over all
  such y together at most g(t) / (n + 1) <= delta, because the noise is at most t - k with a probability of at most
  e^(-e0 (k - t)).
- Without her, f(y) <= (n + 1) / n f'(y), and 1 + 1 / n <= 1 + e^eta / t because n >= k > t.

This also holds if verifiers are drawn at random anew for each trace, and the input user counts too: if v is a verifier,
let another user, drawn at random, take her place. Then counts differ by at most 1, and the c >= t verifiers beside v in
her bin all belong to the n users.

What the theorem does not cover:

- More than one trace. Every trace depends on every user, who may be its input user or a plausible user. So for m
  traces, if the input user of each trace is drawn at random, epsilon and delta are m times as large, even if the traces
  have different input users.
- Traces made from every user in turn. Then no input user is drawn, and an additional user means an additional trace.
  The theorem holds for one of these traces if it is drawn at random from all traces, withheld traces included.
- The event that nothing is released. For a person who sees this event, delta is larger by up to 1 / (n + 1), the
  probability that v was drawn.
- The learning of the model. The theorem assumes that its parameters are the same in both data sets; parameters of one
  user alone, such as copied events, belong to her data. If other parameters are learned from her traces too, they may
  reveal her.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.errors import Problem, raise_any

SMALLEST = sys.float_info.min


class Budgets(NamedTuple):
    """Pairs of epsilon (decreasing) and delta (increasing) for t from 1 to k - 1; all of them hold for one trace."""

    t: Int[np.ndarray, " t"]
    epsilon: Float[np.ndarray, " t"]
    delta: Float[np.ndarray, " t"]


def budgets_of_one_trace(k: int, eta: float, noise_epsilon: float) -> Budgets:
    """The differential privacy of one trace whose input user was drawn at random: Theorem 1, see the module.

    `k`, `eta`, `noise_epsilon`: as in `PrivacyTestSettings`. Raises `InputError`: a parameter is out of range.

    Examples
    --------
    >>> budgets = budgets_of_one_trace(k=50, eta=1.0, noise_epsilon=1.0)
    >>> round(float(budgets.epsilon[29]), 4), float(f"{budgets.delta[29]:.1e}")
    (1.0867, 2.1e-09)
    """
    problems: list[Problem | str] = []
    if k < 1:
        problems.append(Problem("k of at least 1", repr(k)))
    for name, value in (("eta", eta), ("noise_epsilon", noise_epsilon)):
        if not 0 < value < np.inf:
            problems.append(Problem(f"a positive, finite {name}", repr(value)))
    raise_any("randomized test", problems)
    t = np.arange(1, k)
    # A delta that is too small for a float is not 0.
    delta = np.maximum(np.exp(-noise_epsilon * (k - t)), SMALLEST)
    return Budgets(t, noise_epsilon + np.logaddexp(0, eta - np.log(t)), delta)
