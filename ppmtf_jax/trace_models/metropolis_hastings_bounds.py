"""Bounds in single precision of the log-probabilities of Metropolis-Hastings chains in double precision.

The user's visits are computed in double precision, and then rounded. So four errors remain, where u = 2^-24 is the
rounding unit, A the row of the user, and B, C the rows of the two places in the factors:

1. A transition x = sum_z A_z B_z C_z. Each of its terms is rounded at most rank + 4 times: the three numbers, their
   first product, and the scalar product, in any order of summation. So its error is at most (rank + 4) u sum_z |A_z B_z
   C_z|, and by the inequality of Cauchy and Schwarz at most (rank + 4) u |A| |B * C| =: e. With the floor, the
   transition lies between max(x - e, floor) and max(x + e, floor). For one user alone, x is computed in double
   precision: e is then smaller by the factor 2^29, even with the lengths of the longest B and C, and x +- e is rounded.
2. The other operations of a step: products and quotients of positive numbers, each with a relative error of at most u.
   There are fewer than `ROUNDINGS`.
3. A row sum adds the floored transitions from a place to all n places. The errors of its terms add up to at most (rank
   + 4) u sum_z |A_z| |B_z| sum_c |C_cz|, since a floor makes no error larger. Adding t positive numbers, in any order,
   has a relative error of at most t u. No row sum is less than n times the floor.
4. Staying is out(a) + sum_b max(out(b) - back(b), 0), where max(out - back, 0) = out - min(out, back). Let back be
   computed as back', and |back' - back| <= r max(back, back') for an r up to 1. Then min(out, back) has an error of at
   most r out. Proof: let s be the smaller and l the larger of back and back'. If s >= out, nothing changes. Else the
   change is min(out, l) - s, and s >= (1 - r) l >= (1 - r) min(out, l), so the change is at most r min(out, l). So the
   sum has an error of at most the errors of out(b), plus sum_b r(b) out(b), which does not depend on the slot, plus the
   rounding of a sum of numbers that add up to at most 1. The errors of all out(b) add up to at most twice the
   relative error of the row sum, which is that of its terms and that of their sum.

A logarithm in single precision has an error of at most `LOG_ERROR` times its size, which a test measures. All constants
are larger than needed, for the errors of the bounds themselves.
"""

from __future__ import annotations

import math
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
    exact_row: Float[Array, "rank *user"]  # A in double precision
    exact_error: Float[Array, "*user"]  # e of all transitions in double precision
    row_error: Float[Array, "place *user"]  # of the row sums, relative
    row_sum: Bounds


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
        """Row sums in single precision with their errors; targets, computed in double precision and then rounded."""
        found, error, row_sum = self.row_sums(users)
        tables = self.exact.tables(users, found)
        first = jax.vmap(jax.vmap(self.exact.log_first, (-1, None)), (None, 0))(tables, jnp.arange(len(found)))
        known = tables.visits.min(axis=(0, 1)) > SMALLEST_VISITS
        first = Bounds(*map(jnp.where, (known, known), _widened(*[_single(first)] * 2), (-jnp.inf, jnp.inf)))
        tables = tables._replace(visits=jnp.maximum(tables.visits, SMALLEST_VISITS))
        row, factors = tables.transition_row, (self.exact.place, self.exact.next_place)
        length = jnp.linalg.norm(row, axis=0)
        exact_error = 2.0**-29 * self._rounding * length * math.prod(jnp.linalg.norm(x, axis=1).max() for x in factors)
        tables, length = jax.tree.map(_single, (tables, length))
        return BoundTables(first, tables, length, row, exact_error, error, row_sum)

    def row_sums(
        self, users: Int[Array, " user"]
    ) -> tuple[Float[Array, "place user"], Float[Array, "place user"], Bounds]:
        """Row sums in single precision, their relative errors, and their bounds."""
        model, rows = self.single, self.single.user[users].T
        with jax.default_matmul_precision("highest"):
            found, n_terms = model.row_sums(rows)
            sizes = (jnp.abs(model.place) * jnp.sum(jnp.abs(model.next_place), axis=0)) @ jnp.abs(rows)
        error = 1.02 * (self._rounding * sizes / found + UNIT * (n_terms + 4))
        least = len(model.place) * model.floor * (1 - 4 * UNIT)
        return found, error, Bounds(jnp.maximum(found * (1 - error), least), found * (1 + error))

    def log_first(self, cache: BoundTables, place: Int[Array, ""]) -> Bounds:
        """Bounds of the first place; infinite if nothing is known of the user, so that all her sums are infinite."""
        return Bounds(*(each[place] for each in cache.first))

    def log_moves(
        self,
        cache: BoundTables,
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Bounds:
        """As `MetropolisHastings.log_moves`, with the smallest and with the largest possible transitions."""
        slots, visits = self.single.slot_of_instant[instants], cache.tables.visits
        forth, back = self._proposal(cache, places, next_places), self._proposal(cache, next_places, places)
        ratio = visits[slots, next_places] / visits[slots, places]
        return _log(*(jnp.minimum(each, other * ratio) for each, other in zip(forth, back, strict=True)))

    def log_stays(self, cache: BoundTables, instants: Int[Array, " step"], places: Int[Array, " step"]) -> Bounds:
        """The sum of rejections is computed once; its error makes the lower and the upper bound."""
        with jax.default_matmul_precision("highest"):
            refused, error = self.single.refused(cache.tables, instants, places, self._rounding, cache.row_error)
        same = self._proposal(cache, places, places)
        error = (1.01 * (error + 2 * cache.row_error) + ROUNDINGS * UNIT)[places]
        return _log(jnp.maximum(same.lower + refused - error, 0), same.upper + refused + error)

    def _proposal(self, cache: BoundTables, places: Int[Array, " step"], next_places: Int[Array, " step"]) -> Bounds:
        # Of one user, double precision takes less time than the bound of an error.
        is_one = len(cache.length) == 1
        model, row = (self.exact, cache.exact_row) if is_one else (self.single, cache.tables.transition_row)
        design = model.place[places] * model.next_place[next_places]
        with jax.default_matmul_precision("highest"):
            transition = design @ row
        length = jnp.linalg.norm(design, axis=1)[:, None] * cache.length
        error = cache.exact_error if is_one else self._rounding * length
        entries, row_sum = (places, next_places, None), cache.row_sum
        limits = (_single(transition - error), row_sum.upper), (_single(transition + error), row_sum.lower)
        return Bounds(
            *(self.single.mixed(self.single.floored(each) / total[places], entries) for each, total in limits)
        )

    @property
    def _rounding(self) -> float:
        return (self.single.user.shape[1] + 5) * UNIT


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class BoundsOfOwnSteps:
    """Bounds of the steps of one user at a time, in double precision; only the row sums are the bounds of `steps`.

    If a row sum grows, the probability of a move gets smaller. The probability of a stay gets smaller if the row sum of
    the place grows, and larger if the row sum of another place grows, from which the user could come back.
    """

    steps: MetropolisHastingsBounds

    def user_cache(self, users: Int[Array, " user"]) -> tuple[Any, Any]:
        """The `UserTables` with the lower and with the upper bounds of the row sums."""
        exact = self.steps.exact
        row_sum = jax.tree.map(lambda bound: bound.astype(exact.user.dtype), self.steps.row_sums(users)[2])
        return exact.tables(users, row_sum.lower), row_sum.upper

    def log_own_steps(
        self, cache: tuple[Any, Any], which: Int[Array, " trace"], places: Int[Array, "trace instant"]
    ) -> Bounds:
        """See `ScoredTraceModel.log_own_steps`."""
        tables, upper = cache
        sums = (upper, tables.row_sum), (tables.row_sum, upper)
        return Bounds(*self.steps.exact.own_steps_of(tables, sums, which, places))


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
