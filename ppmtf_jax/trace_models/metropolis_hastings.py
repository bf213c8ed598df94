"""Traces from reconstructed count tensors by Metropolis-Hastings (Murakami et al. 2021, section 3.4).

The proposal of user n is the row of reconstructed transitions r_n(a, .), floored and normalized: `proposal_matrix`. The
target of a slot is the reconstructed visits, floored: `visit_distribution`. They define the user's chain in a slot:
`transition_matrix`. To draw from its row Q_{n,i}(a, .), a place is proposed from Q*_n(a, .) and accepted with the
probability in (5). So a step, `MetropolisHastings.move`, needs only two rows of the proposal and their sums, no matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.trace_models.base import Index, OneKey, ScoredTraceModel, Steps, StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index

Chains = TypeVar("Chains", bound="MetropolisHastings")
FLOOR = 1e-8
# With these bounds, all products and quotients of a step stay within single precision (1e-38 to 1e38), for ranks and
# numbers of places up to a million: reconstructed counts lie between the smallest floor and 1e18 * rank, so their ratio
# is at most 1e36. A step that is less probable than 1e-38 is never drawn, and its log-probability is -inf.
SMALLEST_FLOOR = 1e-12
LARGEST_FACTOR = 1e6
# Blocks of places have this number of entries (places times users), so that they stay in the cache of a core.
BLOCK = 200 * 64
PARTS = 4
# Number of stays whose rejections are summed together, of one user each.
STAYS_AT_A_TIME = 16
FACTORS = ("user", "place", "next_place", "visit_user", "visit_place", "slot")
# Settings that a fit may choose by held-out cells, and the guides of variational inference that it may compare.
CHOSEN = {"rank": int, "noise_precision": float, "n_zeros": int}
GUIDES = ("delta", "normal")
# Factors of the visits that may be those of the transitions, which are then stored once.
SAME_FACTORS = {"visit_user": "user", "visit_place": "place"}


def _factor(rows: str, rank: str, *, optional: bool = False) -> StoredArray:
    return StoredArray((rows, rank), low=-LARGEST_FACTOR, high=LARGEST_FACTOR, optional=optional)


class UserTables(NamedTuple):
    """Precomputed arrays for the log-probabilities of some users, or of one user."""

    transition_row: Float[Array, "rank *user"]  # the rows of the users in the user factor of the transitions
    # Sum of each row of the floored transitions: the normalizers of the personal proposal.
    row_sum: Float[Array, "place *user"]
    visits: Float[Array, "slot place *user"]  # floored visits: the target of each slot up to its normalizer


def in_blocks(
    array: Float[Array, "place *rest"], rows: Float[Array, "rank user"], block: int = BLOCK
) -> Float[Array, "block some *rest"]:
    """An array of places in equal blocks whose size suits the users of `rows`; padded with zeros."""
    n_places, n_users = len(array), rows.shape[1]
    n_blocks = max(1, -(-n_places * n_users // block))
    size = PARTS * -(-n_places // (n_blocks * PARTS))
    padding = [(0, n_blocks * size - n_places), *[(0, 0)] * (array.ndim - 1)]
    return jnp.pad(array, padding).reshape(n_blocks, size, *array.shape[1:])


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MetropolisHastings(ScoredTraceModel):
    """Metropolis-Hastings chains of all users from the factors of both tensors."""

    # `user`, `place`, `next_place`: factors of the transitions. Factors may be negative; only counts have a floor.
    user: Float[Array, "user rank"] = stored(lambda _: _factor("users", "rank"))
    place: Float[Array, "place rank"] = stored(lambda _: _factor("places", "rank"))
    next_place: Float[Array, "place rank"] = stored(lambda _: _factor("places", "rank"))
    # `visit_user`, `visit_place`, `slot`: factors of the visits; in PPMTF the user and place factors are the same as
    # for the transitions.
    visit_user: Float[Array, "user rank2"] = stored(lambda _: _factor("users", "visit rank", optional=True))
    visit_place: Float[Array, "place rank2"] = stored(lambda _: _factor("places", "visit rank", optional=True))
    slot: Float[Array, "slot rank2"] = stored(lambda _: _factor("slots", "visit rank"))
    slot_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray(("instants",), "int", 0, n.slots - 1))
    # phi: transitions below phi become phi, and visits at or below 0 become phi (as in the published program; according
    # to the paper, visits below phi become phi).
    floor: float = stored(lambda _: StoredArray((), low=SMALLEST_FLOOR, high=1), default=FLOOR, static=True)
    # Transition matrix of the population, every entry positive.
    population: Float[Array, "place place"] | None = stored(
        lambda _: StoredArray(("places", "places"), low=0, high=1, optional=True), default=None
    )
    # m: the proposal of user n is (1 - m) r_n(a, b) / sum r_n(a, .) + m population(a, b). 0 as published.
    proposal_mix: float = stored(lambda _: StoredArray((), low=0, high=1), default=0.0, static=True)
    # mu and Lambda: the normal prior of the rows of each of the six factors above, in their order. The factors were
    # drawn given these, see `FactorPrior`. No trace depends on them.
    prior_mean: Float[Array, "6 rank"] | None = stored(
        lambda _: StoredArray((len(FACTORS), "rank"), optional=True), default=None
    )
    prior_precision: Float[Array, "6 rank rank"] | None = stored(
        lambda _: StoredArray((len(FACTORS), "rank", "rank"), optional=True), default=None
    )

    # How the factors were found; no trace depends on it. The values of CHOSEN that held-out cells chose, else 0, and
    # their gain in log density of a cell over the published ones; and the log density for each of GUIDES, if compared.
    chosen: Float[Array, "4"] | None = stored(lambda _: StoredArray((4,), optional=True), default=None)
    guide_score: Float[Array, "2"] | None = stored(lambda _: StoredArray((2,), optional=True), default=None)
    # Of NUTS: R-hat, and the number of divergent draws.
    chains: Float[Array, "2"] | None = stored(lambda _: StoredArray((2,), low=0, optional=True), default=None)

    def sample_first(self, key: OneKey, user: Index) -> Index:
        return sample_index(jax.random.uniform(key, dtype=self.user.dtype), self._visits(user, self.slot_of_instant[0]))

    def sample_next(self, key: OneKey, user: Index, instant: Index, place: Index) -> Index:
        """Propose a place, and accept it with the probability in (5); the normalizer of the target cancels."""
        uniform = jax.random.uniform(key, (2,), self.user.dtype)
        return self.move(uniform, user, self.slot_of_instant[instant], place)

    def move(self, uniform: Float[Array, "2"], user: Array, slot: Array, place: Array) -> Index:
        """The next place from two uniform numbers: one for the proposal, one for its acceptance, eq. (5)."""
        row = self._proposal_from(self.user[user], place)
        proposed = sample_index(uniform[0], row)
        back_row = self._proposal_from(self.user[user], proposed)
        here, there = self._visits(user, slot, jnp.stack([place, proposed]))
        # Compute ratios, as in `log_next`: a product of visits, proposal and sum can leave the range of single
        # precision. The proposal would then be rejected, although its log-probability is finite.
        forth = row[proposed] / row.sum()
        back = (back_row[place] / back_row.sum()) * (there / here)
        return jnp.where(uniform[1] * forth < back, proposed, place)

    def instant_classes(self, n_instants: int) -> np.ndarray:
        """Step probabilities depend only on the slot of the instant."""
        return np.asarray(self.slot_of_instant)[:n_instants]

    def user_cache(self, users: Int[Array, " user"]) -> UserTables:
        """Row sums and targets, for log-probabilities only: a step sums its two rows itself, see `move`.

        The cost is O(places^2 rank) for each user.
        """
        rows = self.user[users].T
        visits = jnp.einsum("ur,sr,pr->spu", self.visit_user[users], self.slot, self.visit_place)
        return UserTables(rows, self._row_sums(rows), self._floored_visits(visits))

    def _row_sums(self, rows: Float[Array, "rank user"]) -> Float[Array, "place user"]:
        """Sum of each row of the floored transitions of some users; no matrix is stored."""
        arrays = jnp.ones((len(self.place), 1), rows.dtype), self.next_place
        inside, factors = (in_blocks(array, rows, 2 * BLOCK) for array in arrays)
        size = inside.shape[1]
        parts, ones = size // PARTS, jnp.ones(size // PARTS, rows.dtype)

        def of_place(place_row: Array) -> Array:
            scaled = place_row[:, None] * rows

            def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
                inside, terms = (x.reshape(PARTS, parts, -1) for x in (block[0], self.floored(block[1] @ scaled)))
                # Adding some parts before the product with ones is faster, and rounds less.
                return total + ones @ sum(inside[i] * terms[i] for i in range(PARTS)), None

            return jax.lax.scan(add, jnp.zeros(rows.shape[1], rows.dtype), (inside, factors))[0]

        return jax.lax.map(of_place, self.place)

    def log_first(self, cache: UserTables, place: Index) -> Float[Array, ""]:
        target = cache.visits[self.slot_of_instant[0]]
        return jnp.log(target[place] / target.sum())

    def log_next(self, cache: UserTables, instant: Index, place: Index, next_place: Index) -> Float[Array, ""]:
        tables, step = jax.tree.map(lambda leaf: leaf[None], (cache, (instant, place, next_place)))
        return self._log_steps(tables, jnp.zeros(1, jnp.int32), *step)[0]

    def log_own_steps(
        self, cache: UserTables, which: Int[Array, " trace"], places: Int[Array, "trace instant"]
    ) -> Float[Array, "trace instant"]:
        n_traces, n_steps = len(places), places.shape[1] - 1
        target = cache.visits[:, self.slot_of_instant[0]]
        # XLA would compute a sum along the last axis again for each trace.
        total = target @ jnp.ones_like(target[0])
        first = jnp.log(target[which, places[:, 0]] / total[which])[:, None]
        if not n_steps:
            return first
        instants = jnp.tile(jnp.arange(1, n_steps + 1), n_traces)
        before, after = places[:, :-1].ravel(), places[:, 1:].ravel()
        steps = self._log_steps(cache, jnp.repeat(which, n_steps), instants, before, after)
        return jnp.concatenate([first, steps.reshape(n_traces, n_steps)], axis=1)

    def _log_steps(
        self, cache: UserTables, which: Steps, instants: Steps, places: Steps, next_places: Steps
    ) -> Float[Array, " step"]:
        """Log-probabilities of steps, each of one user of the cache; the users are the first axis of the cache.

        A stay is a sum over all places, so it is computed only where a step stays.
        """
        slots, rows = self.slot_of_instant[instants], cache.transition_row[which]
        stays = places == next_places
        order, size = jnp.argsort(~stays, stable=True), min(STAYS_AT_A_TIME, len(stays))

        def of_stays(number: Array, found: Array) -> Array:
            # If fewer than `size` steps are left, JAX begins earlier, and some steps are computed twice.
            at = jax.lax.dynamic_slice_in_dim(order, number * size, size)
            targets = cache.visits[which[at], slots[at]]
            probabilities = self._stays(rows[at], cache.row_sum[which[at]], targets, places[at])
            return found.at[at].set(jnp.where(stays[at], probabilities, found[at]))

        forth, back = (
            (self.place[a] * self.next_place[b] * rows).sum(axis=1)
            for a, b in ((places, next_places), (next_places, places))
        )
        ratio = cache.visits[which, slots, next_places] / cache.visits[which, slots, places]
        there = self.mixed(self.floored(forth) / cache.row_sum[which, places], (places, next_places))
        here = self.mixed(self.floored(back) / cache.row_sum[which, next_places], (next_places, places))
        moves = jnp.minimum(there, here * ratio)
        return jnp.log(jax.lax.fori_loop(0, -(-jnp.sum(stays) // size), of_stays, moves))

    def _stays(
        self,
        rows: Float[Array, "step rank"],
        row_sum: Float[Array, "step place"],
        targets: Float[Array, "step place"],
        places: Steps,
    ) -> Float[Array, " step"]:
        """Probabilities of staying: the probability of proposing the same place, plus that of all rejections.

        The flow a -> b is target(a) proposal(a, b); its excess over the flow b -> a is rejected. Summing these
        non-negative rejections keeps the digits that 1 - (sum of moves) would lose.
        """
        step = jnp.arange(len(places))
        forth = self.floored((rows * self.place[places]) @ self.next_place.T)
        back = self.floored((rows * self.next_place[places]) @ self.place.T)
        ratio = targets / targets[step, places][:, None]
        out = self.mixed(forth / row_sum[step, places][:, None], (places,))
        returns = self.mixed(back / row_sum, (jnp.arange(len(self.place)), places[:, None]))
        # A product with ones is vectorized; a sum along the last axis is not.
        return out[step, places] + jnp.maximum(out - returns * ratio, 0) @ jnp.ones_like(out[0])

    def log_moves(
        self, cache: UserTables, instants: Steps, places: Steps, next_places: Steps
    ) -> Float[Array, "step user"]:
        slots = self.slot_of_instant[instants]
        forth, back = self._proposal(cache, places, next_places), self._proposal(cache, next_places, places)
        return jnp.log(jnp.minimum(forth, back * (cache.visits[slots, next_places] / cache.visits[slots, places])))

    def log_stays(self, cache: UserTables, instants: Steps, places: Steps) -> Float[Array, "step user"]:
        return jnp.log(self._proposal(cache, places, places) + self._refused(cache, instants, places))

    def _refused(self, cache: UserTables, instants: Steps, places: Steps) -> Float[Array, "step user"]:
        """Probability that another place is proposed and then rejected, for steps sorted by place; see `_stays`."""
        rows, row_sum, visits = cache
        n_places, n_users = row_sum.shape
        refused = jnp.zeros((len(places), n_users), rows.dtype)
        if not len(places):  # JAX cannot index an empty array
            return refused
        slots = self.slot_of_instant[instants]
        distinct = jnp.unique(places, size=n_places, fill_value=n_places)
        n_distinct = jnp.sum(distinct < n_places)
        begin, end = (jnp.searchsorted(places, distinct, side=side) for side in ("left", "right"))
        to_here = 1 / visits[slots, places]
        # The places are cut into blocks, so that the targets of a block stay in the cache of a core.
        inside, share = in_blocks(jnp.ones((n_places, 1), rows.dtype), rows), in_blocks(1 / row_sum, rows)
        leave, arrive = in_blocks(self.place, rows), in_blocks(self.next_place, rows)
        n_blocks, size, _ = leave.shape
        # Adding some parts before the product with ones is faster still.
        parts, ones = (PARTS, size // PARTS, n_users), jnp.ones(size // PARTS, rows.dtype)
        targets = jax.vmap(in_blocks, (0, None), 1)(visits, rows).reshape(n_blocks, len(visits), *parts)

        def of_block(block: Array, refused: Array) -> Array:
            others, of_slots = block * size + jnp.arange(size), targets[block]

            def of_place(number: Array, refused: Array) -> Array:
                place = distinct[number]
                forth = self.floored((self.place[place] * arrive[block]) @ rows)
                back = self.floored((leave[block] * self.next_place[place]) @ rows)
                out = inside[block] * self.mixed(forth / row_sum[place], (place, others, None))
                back = self.mixed(back * share[block], (others, place, None)).reshape(parts)
                # Without the barrier XLA computes both rows again for every step.
                out, back = jax.lax.optimization_barrier((out.reshape(parts), back))

                def of_step(step: Array, refused: Array) -> Array:
                    slot, scale = slots[step], to_here[step]
                    excess = (out[i] - back[i] * (of_slots[slot, i] * scale) for i in range(PARTS))
                    some = sum(jnp.maximum(each, 0) for each in excess)
                    return jax.lax.dynamic_update_index_in_dim(refused, refused[step] + ones @ some, step, 0)

                return jax.lax.fori_loop(begin[number], end[number], of_step, refused)

            return jax.lax.fori_loop(0, n_distinct, of_place, refused)

        return jax.lax.fori_loop(0, n_blocks, of_block, refused)

    @property
    def settings_found(self) -> dict[str, Any]:
        """The settings that the fit chose by held-out cells."""
        found: dict[str, Any] = {} if self.guide_score is None else {"guide": GUIDES[int(np.argmax(self.guide_score))]}
        if self.chosen is not None:
            values = zip(CHOSEN.items(), np.asarray(self.chosen).tolist(), strict=False)
            found |= {name: kind(value) for (name, kind), value in values if value}
        return found

    def summary(self) -> list[str]:
        said, found = [], self.settings_found
        if self.chosen is not None:
            chosen = ", ".join(f"{name} {found[name]:g}" for name in CHOSEN if name in found)
            gain = f"; {self.chosen[-1]:+.3g} nats a cell over the published settings" if self.chosen[-1] else ""
            said.append(f"Held-out cells chose {chosen}{gain}")
        if self.guide_score is not None:
            scores = ", ".join(f"{guide} {score:.4g}" for guide, score in zip(GUIDES, self.guide_score, strict=True))
            said.append(f"The {found['guide']} guide predicts held-out cells best (nats a cell: {scores})")
        if self.chains is not None:
            r_hat, n_divergent = self.chains
            said.append(f"NUTS: R-hat {r_hat:.2f} (1.01 if the chains have met), {n_divergent:.0f} divergent draws")
        return said

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All factors; factors of the visits that equal those of the transitions are left out."""
        arrays = super().to_arrays()
        shared = [name for name, other in SAME_FACTORS.items() if np.array_equal(arrays[name], arrays[other])]
        return {name: array for name, array in arrays.items() if name not in shared}

    @classmethod
    def from_arrays(cls: type[Chains], arrays: dict[str, np.ndarray]) -> Chains:
        shared = {name: other for name, other in SAME_FACTORS.items() if name not in arrays}
        arrays = arrays | {name: arrays[other] for name, other in shared.items()}
        if arrays["visit_user"].shape[1] != arrays["slot"].shape[1]:
            raise ValueError("factors of the visits of different rank")
        model = super().from_arrays(arrays)
        # One copy in memory serves both tensors.
        return replace(model, **{name: getattr(model, other) for name, other in shared.items()})

    def floored(self, transitions: Array) -> Array:
        """Transitions, at least the floor."""
        return jnp.maximum(transitions, self.floor)

    def mixed(self, personal: Array, entries: tuple[Any, ...]) -> Array:
        """Mix entries of the personal proposal with the same entries of the population's, if there is one."""
        if self.population is None:
            return personal
        return (1 - self.proposal_mix) * personal + self.proposal_mix * self.population[entries]

    def _proposal_from(self, user_row: Float[Array, " rank"], place: Index) -> Float[Array, " place"]:
        """A row of the proposal; without a population it is not normalized, and its caller divides by its sum."""
        row = self.floored(self.next_place @ (user_row * self.place[place]))
        return row if self.population is None else self.mixed(row / row.sum(), (place,))

    def _proposal(
        self, cache: UserTables, place: Int[Array, "*step"], next_place: Int[Array, "*step"]
    ) -> Float[Array, "*step_and_user"]:
        """The proposal of one step of one user, or of many steps of all users of the cache."""
        design = self.place[place] * self.next_place[next_place]
        personal = self.floored(design @ cache.transition_row) / cache.row_sum[place]
        each_user = (None,) * (personal.ndim - place.ndim)
        return self.mixed(personal, (place, next_place, *each_user))

    def _visits(
        self, user: Index, slot: Index, places: slice | Int[Array, " some"] = slice(None)
    ) -> Float[Array, " some"]:
        return self._floored_visits(self.visit_place[places] @ (self.visit_user[user] * self.slot[slot]))

    def _floored_visits(self, visits: Array) -> Array:
        # A target of exactly 0 would exclude the place for ever, so it becomes phi like negative targets.
        return jnp.where(visits > 0, visits, self.floor)


# The definition of the chain, matrix by matrix, in O(places^2 rank) for each user. It is for readers, and it is the
# oracle of the tests for the faster ways of `MetropolisHastings` to draw and to score by the same numbers.


def proposal_matrix(model: MetropolisHastings, user: int | Index) -> Float[Array, "place next_place"]:
    """Q*_n of section 3.4: the probability that each next place is proposed, from each place."""
    transitions = model.floored((model.place * model.user[user]) @ model.next_place.T)
    return model.mixed(transitions / transitions.sum(axis=1, keepdims=True), ())


def visit_distribution(model: MetropolisHastings, user: int | Index, slot: int | Index) -> Float[Array, " place"]:
    """pi_{n,i} of section 3.4: the target, where the user is in a slot; in the first slot, their first place."""
    visits = model.visit_place @ (model.visit_user[user] * model.slot[slot])
    visits = jnp.where(visits > 0, visits, model.floor)
    return visits / visits.sum()


def transition_matrix(
    model: MetropolisHastings, user: int | Index, slot: int | Index
) -> Float[Array, "place next_place"]:
    """Q_{n,i} of eq. (5): propose b from a, accept with min(1, pi(b) Q*(b, a) / (pi(a) Q*(a, b))), else stay at a."""
    proposal, target = proposal_matrix(model, user), visit_distribution(model, user, slot)
    back = proposal.T * (target / target[:, None])
    # A sum of refusals keeps the digits that 1 - (sum of moves) would lose.
    stays = jnp.diagonal(proposal) + jnp.maximum(proposal - back, 0).sum(axis=1)
    return jnp.where(jnp.eye(len(target), dtype=bool), stays[:, None], jnp.minimum(proposal, back))


proposal_matrices = jax.vmap(proposal_matrix, (None, 0))
"""`proposal_matrix` of several users: (user, place, next place)."""
visit_distributions = jax.vmap(visit_distribution, (None, 0, 0))
"""`visit_distribution` of several users, each in a slot: (user, place)."""
transition_matrices = jax.vmap(transition_matrix, (None, 0, 0))
"""`transition_matrix` of several users, each in a slot: (user, place, next place)."""
