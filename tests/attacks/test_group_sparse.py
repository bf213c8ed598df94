"""Transition matrices by group sparsity tensor factorization, and the choice of its beta."""

from typing import Any

import numpy as np
import pytest

from ppmtf_jax.attacks.estimators import group_sparse
from ppmtf_jax.attacks.estimators.base import estimate_transitions
from ppmtf_jax.attacks.estimators.group_sparse import BETAS, GroupSparseSettings, cross_validate_beta
from ppmtf_jax.attacks.estimators.tensor import FactorizedCounts
from ppmtf_jax.attacks.place_groups import groups_of_moves
from ppmtf_jax.data.runs import Transitions
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.support import minutes, places_in_line, to_traces

PLACES, GRID = places_in_line(24), minutes(12)


def haunts(n_users: int, n_haunts: int = 4) -> Traces:
    """Each user wanders among the six places of one of some haunts; with none, among all places."""
    rng = np.random.default_rng(0)
    n_near = len(PLACES) // max(n_haunts, 1)
    first = [n_near * (user % n_haunts) if n_haunts else 0 for user in range(n_users)]
    place = rng.integers(n_near if n_haunts else len(PLACES), size=(n_users, GRID.n_instants))
    rows = [(u, 0, i, first[u] + int(place[u, i])) for u in range(n_users) for i in range(GRID.n_instants)]
    return to_traces(rows, PLACES, GRID)


def factorized(train: Traces, **settings: Any) -> FactorizedCounts:
    counts = estimate_transitions(train, "gstf", **settings).counts
    assert isinstance(counts, FactorizedCounts)
    return counts


def test_groups_and_controls() -> None:
    train = haunts(12)
    steps = train.transitions()
    by_mcl = groups_of_moves(steps.place, steps.next_place, train.places)
    found = {
        groups: np.asarray(factorized(train, beta=0.1, groups=groups, rank=4).group)
        for groups in ("mcl", "shuffled", "one", "singletons")
    }
    assert by_mcl.max() == 3
    assert found["mcl"].tolist() == by_mcl.tolist()
    assert np.bincount(found["shuffled"]).tolist() == np.bincount(by_mcl).tolist()
    assert found["shuffled"].tolist() != by_mcl.tolist()
    assert not found["one"].any()
    assert found["singletons"].tolist() == list(range(24))


def test_a_larger_beta_leaves_fewer_columns_of_groups() -> None:
    train = haunts(12)
    in_use = []
    for beta in (0.01, 3.0, 1e4):
        counts = factorized(train, beta=beta, rank=4)
        assert counts.beta == beta
        of_places = [factor for factor in counts.factors if len(factor) == 24]
        by_haunt = np.stack(of_places).reshape(4, 4, 6, 4)  # matrix, haunt, place, column
        in_use.append(int((by_haunt > 0).any(axis=2).sum()))
    assert in_use[0] > in_use[1] > in_use[2] == 0
    matrices = estimate_transitions(train, "gstf", beta=1e4, rank=4).of_users(np.array([0]))
    assert np.allclose(matrices, 1 / 24)


def test_cross_validation_sees_whose_transitions_are_held_out() -> None:
    settings = GroupSparseSettings(rank=4)
    scores = cross_validate_beta(haunts(16), settings, betas=(0.1, 0.5, 1e4), n_folds=3)
    # A held-out run tells its haunt, which a quarter of the users share: 1 for 12 of 15 others, 1/2 for 3.
    assert scores.shape == (3, 3)
    mean = scores.mean(axis=1)
    assert mean[:2].max() == pytest.approx((12 + 3 / 2) / 15, abs=0.1)
    # Where all factors are 0 nobody is told apart; nor where all wander everywhere, by more than chance allows: the
    # standard deviation of an AUC of 48 runs is about 1/sqrt(12 * 48).
    assert mean[2] == 0.5
    aimless = cross_validate_beta(haunts(16, n_haunts=0), settings, betas=(0.1, 0.3, 0.5), n_folds=3)
    assert np.abs(aimless.mean(axis=1) - 0.5).max() < 4 / np.sqrt(12 * 48)


def test_the_default_is_the_best_of_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traces, settings, seed and progress of the fit are those of the cross-validation."""
    train, settings = haunts(12), GroupSparseSettings(rank=4)
    asked: list[Any] = []

    def cross_validated(*of: Any, **how: Any) -> np.ndarray:
        asked.append((of, how))
        found = np.full((len(BETAS), 2), 0.6)
        found[2:4] = [[0.9, 0.7], [0.7, 0.9]]
        return found

    monkeypatch.setattr(group_sparse, "cross_validate_beta", cross_validated)
    assert factorized(train, rank=4, seed=3).beta == 0.1  # the smallest of two that are equally good
    assert asked == [((train, settings), {"seed": 3, "progress": False})]


def test_what_cannot_be_cross_validated() -> None:
    with pytest.raises(InputError, match=r"(?s)all above 0.*n_folds of at least 2.*at least 2 users"):
        cross_validate_beta(haunts(1), betas=(0.1, -1.0), n_folds=1)
    with pytest.raises(InputError, match="at least one beta"):
        cross_validate_beta(haunts(2), betas=())


def test_nobodys_only_transition_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are, each once."""
    held_out = []

    def record(_: None, steps: Transitions, floor: float) -> float:
        held_out.extend(steps.user.tolist())
        return 0.5

    monkeypatch.setattr(group_sparse, "fit_factors", lambda *_: (None, None))
    monkeypatch.setattr(group_sparse, "_auc_of_runs", record)
    rows = [(user, 0, instant, instant) for user in range(9) for instant in range(2 if user else 4)]
    cross_validate_beta(to_traces(rows, PLACES, GRID), betas=(0.1,))
    assert held_out == [0, 0, 0]


def test_users_with_few_transitions_can_be_cross_validated() -> None:
    rows = [(0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 2, 0), (1, 0, 0, 4), (1, 0, 1, 5), (2, 0, 0, 9)]
    scores = cross_validate_beta(to_traces(rows, PLACES, GRID), GroupSparseSettings(rank=2, n_sweeps=5), betas=(0.01,))
    # One user has two transitions, so there are two folds; the others' are never held out.
    assert scores.shape == (1, 2)
    assert np.isfinite(scores).all()
