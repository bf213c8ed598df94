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

USERS_AT_A_TIME = 16


class NotAPrivacyGuaranteeWarning(UserWarning):
    """A number was computed that holds for an exact posterior draw only."""


@dataclass(frozen=True)
class CellBounds:
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

    max_cells: int = 100
    n_zeros: int = 1000
    max_count: int = 10

    def __post_init__(self) -> None:
        if self.max_cells < 1 or self.n_zeros < 0 or self.max_count < 1:
            expected = "max_cells and max_count of at least 1, n_zeros of at least 0"
            raise InputError("cell bounds", [Problem(expected, repr(self))])


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
    noise_precision: float, max_transition_count: int = 10, max_visit_count: int = 10, *, kappa: float = 0.0
) -> float:
    """Privacy budget of one exact draw when neighbours differ in a single location: App. G.2.

    epsilon = alpha (8 r_max^I + 4 r_max^II + 12 kappa - 6).

    Proof: changing one event moves it from one visit cell to another (two cells change by 1) and replaces the
    transitions to it and from it (four cells change by 1). A cell changed by 1 changes the squared error by at most
    2 (r_max + kappa) - 1. Hence Delta G <= alpha/2 (4 (2 r_max^I + 2 kappa - 1) + 2 (2 r_max^II + 2 kappa - 1)).

    The paper has 4 r_max^I + 8 r_max^II, with the two tensors exchanged; for equal r_max it is the same.

    Assumes, beyond `epsilon_of_user`: no observed zeros (rho = 0; with them epsilon is larger) and no trimming, which
    could replace other cells.

    Examples
    --------
    >>> round(epsilon_of_location(0.4), 1)
    45.6
    """
    _check(noise_precision, kappa)
    return noise_precision * (8 * max_transition_count + 4 * max_visit_count + 12 * kappa - 6)


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
