"""Proved privacy budgets: of one trace of the randomized test, and of one exact draw of the factors (App. G).

Randomized test: Bindschaedler, Shokri, Gunter, VLDB 2017. Posterior sampling: Murakami et al. 2021, App. G.
Mechanism: releasing one *exact* draw of the factors from the posterior is the exponential mechanism with utility
-G(R, Theta), where G is half the noise precision times the sum of squared errors over the observed cells, minus the
log prior. If Delta G is the largest change of G between neighbours, the draw is 2 Delta G-differentially private.

The functions of App. G state what an exact draw *would* give. A Markov chain of 100 sweeps does not give an exact draw,
and the distance of its distribution from the posterior is not known: **nothing here is a guarantee for a model that
`fit` made**.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.settings import Count, CountOrZero, Settings


class Budgets(NamedTuple):
    """Pairs of epsilon (decreasing) and delta (increasing) for t from 1 to k - 1; all of them hold for one trace."""

    t: Int[np.ndarray, " t"]
    epsilon: Float[np.ndarray, " t"]
    delta: Float[np.ndarray, " t"]


def budgets_of_one_trace(k: int, eta: float, noise_epsilon: float) -> Budgets:
    """The differential privacy of one trace that passed the randomized test (Bindschaedler et al. 2017, Theorem 1).

    Mechanism: draw an input user at random from all n users, make a trace from this user, and release it if the number
    k' of plausible users reaches k plus Laplace noise of scale 1 / e0; otherwise release nothing. Plausible users are
    those in the same bin of probability, ((e^-eta)^(i+1), (e^-eta)^i], the input user included; the gamma of the paper
    is e^eta. Neighbours are two data sets of at least k users, one of which has one additional user. Then for every
    whole t from 1 to k - 1 and every set of traces Y,

        P(the trace of one is in Y) <= e^epsilon P(the trace of the other is in Y) + delta,
        epsilon = e0 + log(1 + e^eta / t),   delta = e^(-e0 (k - t)).

    Proof. Let p_u(y) be the probability that user u's model makes y, c the number of the n users in a bin, and g(c) the
    probability that the noise is at most c - k. A data set gives y with f(y) = 1/n sum over u of p_u(y) g(c of u's
    bin). An additional user v, whose bin has c others with the probability S in all, changes the term S g(c) of their
    bin to (S + p_v) g(c + 1), and 1/n to 1/(n + 1). For Laplace noise, discrete or not, g(c) <= g(c + 1) <= e^e0 g(c).

    - With v, f'(y) <= e^epsilon f(y) if c >= t: p_v < e^eta S / c <= e^eta S / t, because no two probabilities in a
      bin differ by the factor e^eta. If c < t, S g(c + 1) <= e^e0 S g(c), and p_v g(c + 1) / (n + 1) is left over: over
      all such y together at most g(t) / (n + 1) <= delta, because the noise is at most t - k with a probability of at
      most e^(-e0 (k - t)).
    - Without v, f(y) <= (n + 1) / n f'(y), and 1 + 1 / n <= 1 + e^eta / t because n >= k > t.

    This also holds if verifiers are drawn at random anew for each trace, and the input user counts too: if v is a
    verifier, let another user, drawn at random, take their place. Then counts differ by at most 1, and the c >= t
    verifiers beside v in their bin all belong to the n users.

    What the theorem does not cover:

    - More than one trace. Every trace depends on every user, who may be its input user or a plausible user. So for m
      traces, if the input user of each trace is drawn at random, epsilon and delta are m times as large, even if the
      traces have different input users.
    - Traces made from every user in turn. Then no input user is drawn, and an additional user means an additional
      trace. The theorem holds for one of these traces if it is drawn at random from all traces, withheld traces
      included.
    - The event that nothing is released. For a person who sees this event, delta is larger by up to 1 / (n + 1), the
      probability that v was drawn.
    - The learning of the model. The theorem assumes that its parameters are the same in both data sets; parameters of
      one user alone, such as copied events, belong to that user's data. If other parameters are learned from their
      traces too, they may reveal the user.

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
    delta = np.maximum(np.exp(-noise_epsilon * (k - t)), sys.float_info.min)
    return Budgets(t, noise_epsilon + np.logaddexp(0, eta - np.log(t)), delta)


@dataclass(frozen=True)
class CellBounds(Settings, subject="cell bounds"):
    """Bounds on one user's part in a count tensor.

    Parameters
    ----------
    max_cells : int
        lambda: maximum number of positive cells per user, after random trimming.
    n_zeros : int
        rho: number of observed zero cells per user.
    max_count : int
        r_max: larger counts are reduced to r_max.
    """

    max_cells: Count = 100
    n_zeros: CountOrZero = 1000
    max_count: Count = 10


def epsilon_of_user(
    noise_precision: float,
    transitions: CellBounds = CellBounds(),
    visits: CellBounds = CellBounds(),
    *,
    kappa: float = 0.0,
) -> float:
    """Privacy budget of one exact draw when neighbours differ in one user's traces: Proposition 1, eq. (9).

    epsilon = alpha * sum over both tensors of min(3 lambda, lambda + rho) (r_max + kappa)^2.

    Proof (App. G.2): G and G' differ in the cells of one user. The random zeros that both observe are the same except
    for at most 2 lambda. So at most min(3 lambda, lambda + rho) cells of a tensor count on either side. Each adds
    between 0 and alpha/2 (r_max + kappa)^2, because counts lie in [0, r_max] and reconstructions in
    [-kappa, r_max + kappa]. So Delta G is at most epsilon / 2.

    Assumptions: the draw is exact. It is repeated until all reconstructions lie within these bounds ("retry if fail").
    kappa is fixed beforehand, because choosing it by looking at the draws would itself be a release. Both data sets
    have equally many users. Zeros are `sampled`, not `weighted`. All that is released is computed from the draw alone.

    Examples
    --------
    >>> round(epsilon_of_user(0.4))
    24000
    """
    _check(noise_precision, kappa)
    return noise_precision * sum(
        min(3 * bounds.max_cells, bounds.max_cells + bounds.n_zeros) * (bounds.max_count + kappa) ** 2
        for bounds in (transitions, visits)
    )


def epsilon_of_location(
    noise_precision: float,
    max_transition_count: int = 10,
    max_visit_count: int = 10,
    *,
    kappa: float = 0.0,
    zeros_observed: bool = False,
) -> float:
    """Privacy budget of one exact draw when neighbours differ in a single location: App. G.2, corrected.

    epsilon = alpha (2 c(r_max^I) + c(r_max^II)), where c bounds the change of the squared error if one cell rises by 1
    and another one falls by 1. With h = r_max + kappa, the largest reconstruction, it is

        c = 4 h - 2                                            if all zero cells are observed, and
        c = max((h - 1)^2, 2 h - 1, (1 + kappa)^2) + 2 h - 3   if none is (without 2 h - 3 for r_max = 1).

    The paper assumes that no zero is observed (rho = 0) and states 4 h - 2 for each pair: 45.6 at alpha = .4 and counts
    up to 10. This is wrong. A cell that rises from 0 to 1 *becomes* observed, and adds (1 - x)^2, up to 81, where the
    paper has 2 h - 1 = 19. The budget is 117.6, and a pair of data sets reaches it. The paper also exchanges the two
    tensors: it counts the visits twice and the transitions once. For equal r_max the result is the same.

    Proof: changing one event moves it from one visit cell to another, and replaces the transitions to it and from it.
    So one pair of visit cells and two pairs of transition cells change: one cell of each pair rises by 1, the other
    falls by 1. A cell that changes by 2 does so in two steps. Let x be the reconstruction, -kappa <= x <= h. From
    n >= 1 to n + 1 <= r_max the squared error rises by 2 n + 1 - 2 x <= 2 h - 1; from n >= 2 to n - 1 it rises by
    2 x - 2 n + 1 <= 2 h - 3.
    If zeros are observed, the same holds from and to 0, so 2 h - 1 bounds both. If they are not, a cell from 0 to 1
    adds (1 - x)^2, which is largest at an end of the range, and a cell from 1 to 0 adds nothing: it takes (1 - x)^2
    away. The sum, by symmetry, is Delta G <= alpha / 2 (2 c(r_max^I) + c(r_max^II)).

    Further assumptions, besides those of `epsilon_of_user`: no cell is trimmed, because trimming could replace other
    cells; zeros are neither drawn at random nor weighted.

    Parameters
    ----------
    noise_precision : float
        alpha.
    max_transition_count, max_visit_count : int
        r_max of the two tensors.
    zeros_observed : bool
        Whether all zero cells are observed, with the same weight as positive cells. Otherwise no zero cell is observed.

    Examples
    --------
    >>> round(epsilon_of_location(0.4), 1), round(epsilon_of_location(0.4, zeros_observed=True), 1)
    (117.6, 45.6)
    """
    _check(noise_precision, kappa)
    if max_transition_count < 1 or max_visit_count < 1:
        found = f"{max_transition_count}, {max_visit_count}"
        raise InputError("privacy budget", [Problem("greatest counts of at least 1", found)])

    def of_pair(max_count: int) -> float:
        high = max_count + kappa
        if zeros_observed:
            return 4 * high - 2
        falls = 2 * high - 3 if max_count > 1 else 0
        return max((high - 1) ** 2, 2 * high - 1, (1 + kappa) ** 2) + falls

    return noise_precision * (2 * of_pair(max_transition_count) + of_pair(max_visit_count))


def _check(noise_precision: float, kappa: float) -> None:
    if not noise_precision > 0 or not kappa >= 0:
        expected = "a positive noise_precision and kappa of at least 0"
        raise InputError("privacy budget", [Problem(expected, f"{noise_precision}, {kappa}")])
