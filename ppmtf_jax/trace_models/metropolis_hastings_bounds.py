"""Bounds in single precision of the log-probabilities of Metropolis-Hastings chains in double precision.

The user's row sums and visits are computed in double precision, and then rounded. So three errors remain, where u =
2^-24 is the rounding unit, A the row of the user, and B, C the rows of the two places in the factors:

1. A transition x = sum_z A_z B_z C_z. Each of its terms is rounded at most rank + 4 times: the three numbers, their
   first product, and the scalar product, in any order of summation. So its error is at most (rank + 4) u sum_z |A_z B_z
   C_z|, and by the inequality of Cauchy and Schwarz at most (rank + 4) u |A| |B * C| =: e. With the floor, the
   transition lies between max(x - e, floor) and max(x + e, floor).
2. The other operations of a step: products and quotients of positive numbers, each with a relative error of at most u.
   There are fewer than `ROUNDINGS`.
3. Staying is out(a) + sum_b max(out(b) - back(b), 0), where max(out - back, 0) = out - min(out, back). Let back be
   computed as back', and |back' - back| <= r max(back, back') for an r up to 1. Then min(out, back) has an error of at
   most r out. Proof: let s be the smaller and l the larger of back and back'. If s >= out, nothing changes. Else the
   change is min(out, l) - s, and s >= (1 - r) l >= (1 - r) min(out, l), so the change is at most r min(out, l). So the
   sum has an error of at most the errors of out(b), plus sum_b r(b) out(b), which does not depend on the slot, plus the
   rounding of a sum of numbers that add up to at most 1.

A logarithm in single precision has an error of at most `LOG_ERROR` times its size, which a test measures. All constants
are larger than needed, for the errors of the bounds themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ppmtf_jax.trace_models.base import Bounds

UNIT = 2.0**-24
ROUNDINGS = 24
LOG_ERROR = 8 * UNIT
# Below these numbers, single precision loses digits. Upper bounds of probabilities are raised to the first. Nothing is
# known of a user who has a smaller number of visits than the second.
SMALLEST, SMALLEST_VISITS = 1e-37, 1e-30


class BoundTables(NamedTuple):
    """Precomputed arrays for the bounds of some users, or of one user."""

    first: Bounds  # of each place
    tables: Any  # the `UserTables` in single precision
    length: Float[Array, "*user"]  # |A|


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MetropolisHastingsBounds:
    """Bounds of the steps of `MetropolisHastings`, see the module."""

    # The model in double precision and in single precision. Its module imports this one.
    exact: Any
    single: Any

    @classmethod
    def of(cls, exact: Any) -> MetropolisHastingsBounds:
        """Bounds of a model in double precision."""
        return cls(exact, jax.tree.map(_single, exact))

    def user_cache(self, users: Int[Array, " user"]) -> BoundTables:
        """Row sums and targets, in double precision and then rounded."""
        exact = self.exact.user_cache(users)
        first = jax.vmap(jax.vmap(self.exact.log_first, (-1, None)), (None, 0))(exact, jnp.arange(len(exact.row_sum)))
        known = exact.visits.min(axis=(0, 1)) > SMALLEST_VISITS
        first = Bounds(*map(jnp.where, (known, known), _widened(*[_single(first)] * 2), (-jnp.inf, jnp.inf)))
        exact = exact._replace(visits=jnp.maximum(exact.visits, SMALLEST_VISITS))
        length = jnp.linalg.norm(exact.transition_row, axis=0)
        return BoundTables(first, *jax.tree.map(_single, (exact, length)))

    def log_first(self, cache: BoundTables, place: Int[Array, ""]) -> Bounds:
        """Infinite bounds of a user of whom nothing is known, so that the sums of her bounds are infinite."""
        return Bounds(*(each[place] for each in cache.first))

    def log_moves(
        self,
        cache: BoundTables,
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Bounds:
        """The same products as in `MetropolisHastings.log_moves`, of the smallest and of the largest transitions."""
        slots, visits = self.single.slot_of_instant[instants], cache.tables.visits
        forth, back = self._proposal(cache, places, next_places), self._proposal(cache, next_places, places)
        ratio = visits[slots, next_places] / visits[slots, places]
        return _log(*(jnp.minimum(each, other * ratio) for each, other in zip(forth, back, strict=True)))

    def log_stays(self, cache: BoundTables, instants: Int[Array, " step"], places: Int[Array, " step"]) -> Bounds:
        """One sum for both bounds, and its error."""
        same = self._proposal(cache, places, places)
        with jax.default_matmul_precision("highest"):
            refused, error = self.single.refused(cache.tables, instants, places, self._rounding)
        # Cauchy and Schwarz again: the sum of |B * C| over all next places is at most sqrt(n sum |B * C|^2).
        squares = self.single.place**2 @ jnp.sum(self.single.next_place**2, axis=0)
        of_all = self._rounding * jnp.sqrt(len(squares) * squares)[:, None] * cache.length / cache.tables.row_sum
        error = (1.01 * (error + of_all) + ROUNDINGS * UNIT)[places]
        return _log(jnp.maximum(same.lower + refused - error, 0), same.upper + refused + error)

    def _proposal(self, cache: BoundTables, places: Int[Array, " step"], next_places: Int[Array, " step"]) -> Bounds:
        design = self.single.place[places] * self.single.next_place[next_places]
        with jax.default_matmul_precision("highest"):
            transition = design @ cache.tables.transition_row
        error = self._rounding * jnp.linalg.norm(design, axis=1)[:, None] * cache.length
        row_sum, entries = cache.tables.row_sum[places], (places, next_places, None)
        limits = transition - error, transition + error
        return Bounds(*(self.single.mixed(self.single.floored(each) / row_sum, entries) for each in limits))

    @property
    def _rounding(self) -> float:
        return (self.single.user.shape[1] + 8) * UNIT


def _log(lower: Float[Array, "step user"], upper: Float[Array, "step user"]) -> Bounds:
    """Logarithms of bounds of probabilities that still lack the error of the operations."""
    return _widened(jnp.log(lower), jnp.log(jnp.maximum(upper, SMALLEST)))


def _widened(lower: Float[Array, "*step"], upper: Float[Array, "*step"]) -> Bounds:
    """Bounds of log-probabilities, wider by the errors of the operations and of the logarithm."""
    operations = ROUNDINGS * UNIT
    lower = lower - operations + LOG_ERROR * lower
    return Bounds(lower, jnp.minimum(upper + operations - LOG_ERROR * upper, 0))


def _single(array: Array) -> Array:
    return array.astype(jnp.float32) if jnp.issubdtype(array.dtype, jnp.floating) else array
