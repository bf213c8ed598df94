"""What the randomized test gives in differential privacy (Bindschaedler, Shokri, Gunter, VLDB 2017, Theorem 1).

Mechanism: draw an input user by lot from all n users, make a trace from her, and release it if the number k' of
plausible users reaches k plus Laplace noise of scale 1 / e0; otherwise release nothing. Plausible are users in the same
bin of probability, ((e^-eta)^(i+1), (e^-eta)^i], the input user among them: their gamma is e^eta. Then for every whole
t from 1 to k - 1, every set of traces Y, and data sets of at least k users of which one has one user more,

    P(the trace of one is in Y) <= e^epsilon P(the trace of the other is in Y) + delta,
    epsilon = e0 + log(1 + e^eta / t),   delta = e^(-e0 (k - t)).

Proof. Let p_u(y) be the probability that user u's model makes y, c the number of the n users in a bin, and g(c) the
probability that the noise is at most c - k. A data set gives y with f(y) = 1/n sum over u of p_u(y) g(c of u's bin).
One more user v, whose bin has c others, of probability S in all, changes the term S g(c) of her bin to
(S + p_v) g(c + 1), and 1/n to 1/(n + 1). For Laplace noise, discrete or not, g(c) <= g(c + 1) <= e^e0 g(c).

- With her it is f'(y) <= e^epsilon f(y) where c >= t: p_v < e^eta S / c <= e^eta S / t, since no two probabilities in a
  bin differ by the factor e^eta. Where c < t, S g(c + 1) <= e^e0 S g(c), and p_v g(c + 1) / (n + 1) is left over: in
  all, over every such y, at most g(t) / (n + 1) <= delta, since the noise is at most t - k with a probability of no
  more than e^(-e0 (k - t)).
- Without her, f(y) <= (n + 1) / n f'(y), and 1 + 1 / n <= 1 + e^eta / t since n >= k > t.

With verifiers drawn at random anew for each trace, and the input user counted too, it holds as well: if v is one of
them, let another user, drawn at random, stand for her. Counts then differ by at most 1, and of c >= t verifiers
beside v in her bin all are among the n.

What it does not say:

- of more than one trace. Every trace depends on every user, as a possible input user and as a plausible one; so of m
  traces, each made so by a lot of its own, epsilon and delta are m times as large, whoever they were made from;
- of traces that are made from every user in turn. There nobody draws lots, and a user more is a trace more. It holds
  for one of these, picked by lot of all that were made, and not only of those that passed;
- of the event that nothing is released: whoever sees that has a delta larger by up to 1 / (n + 1), the chance that v
  was drawn;
- of how the model was learned. Its parameters are the same in both data sets; those of a user alone, such as copied
  events, are her data. Where others' parameters are learned from her traces too, they give away what they do.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.errors import InputError, Problem

SMALLEST = sys.float_info.min


class Budgets(NamedTuple):
    """The pairs of epsilon and delta that hold, all of them, for one trace.

    Attributes
    ----------
    t : int array, shape (k - 1,)
        1 to k - 1.
    epsilon : float array, shape (k - 1,), falling
    delta : float array, shape (k - 1,), rising
    """

    t: Int[np.ndarray, " t"]
    epsilon: Float[np.ndarray, " t"]
    delta: Float[np.ndarray, " t"]


class Budget(NamedTuple):
    """One pair of them."""

    epsilon: float
    delta: float


def budgets_of_one_trace(k: int, eta: float, noise_epsilon: float) -> Budgets:
    """The differential privacy of one trace whose input user was drawn by lot: Theorem 1, see the module.

    Parameters
    ----------
    k, eta, noise_epsilon
        As in `PrivacyTestSettings`.

    Raises
    ------
    InputError
        They are no parameters of a test.

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
    if problems:
        raise InputError("randomized test", problems)
    t = np.arange(1, k)
    # A delta that is too small for a number is not 0.
    delta = np.maximum(np.exp(-noise_epsilon * (k - t)), SMALLEST)
    return Budgets(t, noise_epsilon + np.logaddexp(0, eta - np.log(t)), delta)


def least_budget(k: int, eta: float, noise_epsilon: float, max_delta: float) -> Budget:
    """The smallest epsilon of one trace whose delta is at most `max_delta`.

    Raises
    ------
    InputError
        There is none: k is too small for it.

    Examples
    --------
    >>> round(least_budget(k=50, eta=1.0, noise_epsilon=1.0, max_delta=1e-6).epsilon, 3)
    1.073
    """
    budgets = budgets_of_one_trace(k, eta, noise_epsilon)
    if not 0 < max_delta < 1:
        raise InputError("randomized test", [Problem("max_delta between 0 and 1", repr(max_delta))])
    enough = np.flatnonzero(budgets.delta <= max_delta)
    if not len(enough):
        needed = 1 + int(np.ceil(-np.log(max_delta) / noise_epsilon))
        least = f"{budgets.delta[0]:.2g} at least" if len(budgets.t) else "none at all"
        way_out = f"Set k={needed}, or a larger noise_epsilon"
        raise InputError("randomized test", [Problem(f"a delta of {max_delta:g}", least, way_out=way_out)])
    return Budget(float(budgets.epsilon[enough[-1]]), float(budgets.delta[enough[-1]]))
