"""Transition matrices of the population, such as `MetropolisHastings` mixes into its proposals."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.tensors import SparseCounts, Trimming
from ppmtf_jax.noise.laplace import add_laplace
from ppmtf_jax.runtime.memory import require_memory

# With at least this many places, GMRES finds a stationary distribution faster than elimination.
ITERATED_PLACES = 256
# Bytes per matrix entry while the matrix is computed. With noise, entries are temporarily Python numbers.
POPULATION_BYTES, PRIVATE_POPULATION_BYTES = 24, 90


def population_transitions(
    transitions: SparseCounts, trimming: Trimming = Trimming(), *, epsilon: float | None = None
) -> Float[np.ndarray, "place next_place"]:
    """Transition matrix of all users together, every entry positive.

    P(a, b) = (N(a, b) + v(b)) / (N(a) + 1), where N are the counts of all users and v(b) = (N(., b) + 1) / (N + places)
    is the smoothed share of the steps that go to b. Each place thus gets one additional step, distributed like all
    steps. If nobody left a place, its next place is distributed like all steps. If few people left a place, its row
    follows these people: without `epsilon` it reveals them. The plausible-deniability test does not detect this,
    because it compares users, and the matrix affects the traces of all users.

    `transitions`: counts that `count_tensors` has trimmed with `trimming`. `epsilon`: privacy budget of the matrix;
    needs max_transitions and max_count in `trimming`. Without it there is no noise.

    Notes
    -----
    With `epsilon` the matrix is epsilon-differentially private at the level of users.

    Neighbours: two data sets that differ by one additional user with all their traces; places are public.

    Mechanism: discrete Laplace noise of scale max_transitions * max_count / epsilon on each of the places x places
    counts N, see `add_laplace`, which has no seed. Noisy counts that noise alone could have produced are then set to
    zero, and the rest is smoothed; both use the noisy counts only.

    Sensitivity of N: max_transitions * max_count in L1. Proof: N is the sum over users of their trimmed counts. The
    choice of a user's kept cells is a function of the seed, her id and her own traces (`count_tensors` uses a random
    stream of her own). So for every seed, the trimmed counts of all other users are the same with and without her, and
    N changes only by her own counts: at most max_transitions cells of at most max_count each. As this holds for every
    seed, the seed may be known.

    Privacy: noise of that scale on a vector of that sensitivity is epsilon-differentially private, and so is everything
    computed from it. This covers the matrix, not the factors of the users.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.data.tensors import count_tensors
    >>> matrix = population_transitions(count_tensors(toy_city(n_users=20, seed=0).traces, seed=0).transitions)
    >>> bool((matrix > 0).all()), bool(np.allclose(matrix.sum(axis=1), 1))
    (True, True)
    """
    n_places = transitions.shape[1]
    cell = transitions.place.astype(np.int64) * n_places + transitions.other
    count = np.bincount(cell, transitions.count, minlength=n_places**2).astype(np.int64)
    if epsilon is not None:
        sensitivity = (trimming.max_transitions or 0) * (trimming.max_count or 0)
        noisy = add_laplace(count, sensitivity, epsilon)
        # The probability that any of n Laplace variables exceeds this is below 1 in 200.
        largest = sensitivity / epsilon * np.log(100 * len(noisy))
        count = np.where(noisy > largest, noisy, 0)
    return one_step_more(count.reshape(n_places, n_places))


def one_step_more(count: Int[np.ndarray, "place next_place"]) -> Float[np.ndarray, "place next_place"]:
    """Transition matrix of counts, with one additional step from each place, distributed like all steps.

    Examples
    --------
    >>> one_step_more(np.array([[0, 3], [0, 0]])).round(2).tolist()
    [[0.05, 0.95], [0.2, 0.8]]
    """
    share = (count.sum(axis=0) + 1) / (count.sum() + len(count))
    return (count + share) / (count.sum(axis=1, keepdims=True) + 1)


def stationary_distribution(
    transition: Float[np.ndarray, "*chain place next_place"],
) -> Float[np.ndarray, "*chain place"]:
    """Stationary distribution of each chain, all of whose transition probabilities are positive.

    Solves pi (I - P + E) = 1, where all entries of E are 1. Then pi E = 1 and pi P = pi, and the solution is unique. It
    is computed by NumPy and SciPy: XLA can wait for ever where several threads call LAPACK.

    Examples
    --------
    >>> stationary_distribution(np.array([[0.9, 0.1], [0.3, 0.7]])).round(12).tolist()
    [0.75, 0.25]
    """
    n_places = transition.shape[-1]
    if n_places >= ITERATED_PLACES:
        chains = transition.reshape(-1, n_places, n_places)
        return np.stack([_by_iterations(each) for each in chains]).reshape(transition.shape[:-1])
    return _by_elimination(transition)


def _by_iterations(transition: Float[np.ndarray, "place next_place"]) -> Float[np.ndarray, " place"]:
    """Stationary distribution of one chain by GMRES; it needs few products if the rows of most places are similar."""
    # Imported only here, because this import takes long.
    from scipy.sparse.linalg import LinearOperator, gmres

    n_places = len(transition)
    system = LinearOperator(transition.shape, lambda x: x - x @ transition + x.sum())
    start = np.full(n_places, 1 / n_places)
    found, failed = gmres(system, np.ones(n_places), start, rtol=1e-13, restart=100, maxiter=1)
    if failed:
        return _by_elimination(transition)
    # One more step of the chain also makes the relative errors of small probabilities small.
    after = np.maximum(found, 0) @ transition
    return after / after.sum()


def _by_elimination(transition: Float[np.ndarray, "*chain place next_place"]) -> Float[np.ndarray, "*chain place"]:
    system = np.eye(transition.shape[-1]) - np.swapaxes(transition, -1, -2) + 1
    solved = np.linalg.solve(system, np.ones((*transition.shape[:-1], 1)))[..., 0]
    positive = np.maximum(solved, np.finfo(solved.dtype).tiny)
    return positive / positive.sum(axis=-1, keepdims=True)


def require_memory_for_population(n_places: int, *, private: bool) -> None:
    """Refuse a transition matrix of the population that needs too much memory."""
    needed = (PRIVATE_POPULATION_BYTES if private else POPULATION_BYTES) * n_places**2
    require_memory("the population's transitions", needed, "Set proposal_mix=0, or take fewer places")
