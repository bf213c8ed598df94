"""What drawing the factors from their posterior gives in differential privacy (Murakami et al. 2021, App. G).

Mechanism: releasing one *exact* draw of the factors from the posterior is the exponential mechanism with utility
-G(R, Theta), G half the noise precision times the sum of squared errors over the observed cells, minus the log prior.
If Delta G is the largest change of G between neighbours, the draw is 2 Delta G-differentially private.

Everything here is a property of an exact draw. A Markov chain of 100 sweeps is not one, and how far it is from one is
not known: no guarantee follows for a model that `fit` made. The functions state what an exact draw *would* give.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.settings import Count, CountOrZero, Settings

USERS_AT_A_TIME = 16


class NotAPrivacyGuaranteeWarning(UserWarning):
    """A number was computed that holds for an exact posterior draw only."""


@dataclass(frozen=True)
class CellBounds(Settings, subject="cell bounds"):
    """What bounds one user's part in a count tensor.

    Parameters
    ----------
    max_cells : int
        lambda: positive cells per user, kept by random trimming.
    n_zeros : int
        rho: observed zero cells per user.
    max_count : int
        r_max: counts are cut to it.
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

    Proof (App. G.2): G and G' differ in the cells of one user. Of these, the zeros that both observe at random are
    common but for 2 lambda at most, so at most min(3 lambda, lambda + rho) cells of a tensor count on either side. Each
    adds between 0 and alpha/2 (r_max + kappa)^2, since counts lie in [0, r_max] and reconstructions in
    [-kappa, r_max + kappa]. So Delta G is at most epsilon / 2.

    Assumes: an exact draw, restricted to reconstructions within these bounds (`sample_until_bounded`); as many users in
    both data sets; zeros `sampled`, not `weighted`; what is released is computed from the draw alone.

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

    epsilon = alpha (2 c(r_max^I) + c(r_max^II)), where c bounds what two cells, of which one rises by 1 and the other
    falls by 1, change the squared error by. With h = r_max + kappa, the largest reconstruction, it is

        c = 4 h - 2                                            where all zero cells are observed, and
        c = max((h - 1)^2, 2 h - 1, (1 + kappa)^2) + 2 h - 3   where none is (without 2 h - 3 for r_max = 1).

    The paper assumes that no zero is observed (rho = 0) and states 4 h - 2 of each pair: 45.6 at alpha = .4 and counts
    up to 10. This is wrong. A cell that rises from 0 to 1 *becomes* observed, and adds (1 - x)^2, up to 81, where the
    paper has 2 h - 1 = 19. The budget is 117.6, and a pair of data sets reaches it. The paper also has the two tensors
    exchanged (twice the visits' part and once the transitions'), which is the same for equal r_max.

    Proof: changing one event moves it from one visit cell to another, and replaces the transitions to it and from it.
    So one pair of visit cells and two of transition cells change, one of each pair rising by 1 and the other falling by
    1; a cell that changes by 2 does so in two steps. Let x be the reconstruction, -kappa <= x <= h. From n >= 1 to
    n + 1 <= r_max the squared error rises by 2 n + 1 - 2 x <= 2 h - 1; from n >= 2 to n - 1 it does by
    2 x - 2 n + 1 <= 2 h - 3.
    Where zeros are observed, the same holds from and to 0, so 2 h - 1 bounds both. Where they are not, a cell from 0
    to 1 adds (1 - x)^2, at most that at an end of the range, and one from 1 to 0 adds nothing: it takes (1 - x)^2 away.
    Adding up, and by symmetry, Delta G <= alpha / 2 (2 c(r_max^I) + c(r_max^II)).

    Assumed, beyond what `epsilon_of_user` assumes, is that nothing is trimmed, which could replace other cells. Zeros
    of which some are drawn, or that have a weight of their own, are not covered.

    Parameters
    ----------
    noise_precision : float
        alpha.
    max_transition_count, max_visit_count : int
        r_max of both tensors.
    kappa : float
        See `epsilon_of_user`.
    zeros_observed : bool
        Whether all zero cells are observed, with the weight of positive ones; else none is.

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


def smallest_kappa(
    user: Float[Array | np.ndarray, "user rank"],
    place: Float[Array | np.ndarray, "place rank"],
    other: Float[Array | np.ndarray, "other rank"],
    max_count: int = 10,
) -> float:
    """The smallest kappa >= 0 with every reconstructed cell of a tensor within [-kappa, max_count + kappa].

    Goes through all users x places x others cells, a few users at a time.
    """

    def extremes(rows: Array) -> tuple[Array, Array]:
        cells = jnp.einsum("uz,iz,jz->uij", rows, place, other)
        return cells.min(), cells.max()

    n_blocks = -(-len(user) // USERS_AT_A_TIME)
    blocks = np.resize(np.asarray(user), (n_blocks, USERS_AT_A_TIME, user.shape[1]))
    low, high = jax.jit(lambda blocks: jax.lax.map(extremes, blocks))(jnp.asarray(blocks))
    return max(0.0, float(-low.min()), float(high.max() - max_count))


@dataclass(frozen=True, eq=False)
class BoundedDraw:
    """A draw within the bounds, and what it took.

    Parameters
    ----------
    factors : dict of arrays
    kappa : float
        The bound that was asked for; `epsilon_of_user` takes this one, not that of the draw.
    n_retries : int
        Draws that were thrown away.
    """

    factors: Mapping[str, Array | np.ndarray]
    kappa: float
    n_retries: int


def sample_until_bounded(
    draw: Callable[[int], Mapping[str, Array | np.ndarray]],
    kappa: float,
    *,
    max_count: int = 10,
    max_retries: int = 100,
) -> BoundedDraw:
    """Draw again until all reconstructions lie within [-kappa, max_count + kappa] ("retry if fail", App. G.2).

    With exact, independent draws the result is an exact draw of the posterior restricted to these bounds.

    Parameters
    ----------
    draw : function of the number of the try
        Gives factors user, place, next_place, slot. Tries must be independent of each other.
    kappa : float
        Fixed beforehand: choosing it by looking at the draws would itself be a release.

    Raises
    ------
    NumericalError
        No draw was within the bounds; says how far the best one was.

    Warns
    -----
    NotAPrivacyGuaranteeWarning
        Always: a Gibbs chain's draw is not exact.
    """
    _check(1.0, kappa)
    warnings.warn(
        "a draw of a Gibbs chain after finitely many sweeps is not an exact posterior draw; "
        "epsilon of App. G does not hold for it",
        NotAPrivacyGuaranteeWarning,
        stacklevel=2,
    )
    best = np.inf
    for attempt in range(max_retries + 1):
        factors = draw(attempt)
        needed = max(
            smallest_kappa(factors["user"], factors["place"], factors["next_place"], max_count),
            smallest_kappa(factors["user"], factors["place"], factors["slot"], max_count),
        )
        if needed <= kappa:
            return BoundedDraw(factors, kappa, attempt)
        best = min(best, needed)
    raise NumericalError(
        f"no draw of {max_retries + 1} had all reconstructions in [-{kappa:g}, {max_count + kappa:g}]; the best one "
        f"needs kappa = {best:.3g}. Choose a larger kappa before drawing anew"
    )


def _check(noise_precision: float, kappa: float) -> None:
    if not noise_precision > 0 or not kappa >= 0:
        expected = "a positive noise_precision and kappa of at least 0"
        raise InputError("privacy budget", [Problem(expected, f"{noise_precision}, {kappa}")])
