"""The choice of settings by held-out cells: the score by brute force, and the search on a known score."""

from __future__ import annotations

import numpy as np
import pytest
from ppmtf_jax.models.mtf_numpyro import list_cells
from scipy import stats

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import NumericalError
from ppmtf_jax.gibbs import selection
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED
from ppmtf_jax.gibbs.selection import PUBLISHED, SWEEPS, choose_settings, hide, log_score
from ppmtf_jax.gibbs.tensors import CountTensors, Trimming, count_tensors
from tests.tensors import sparse


@pytest.fixture(scope="module")
def train():
    return toy_city(n_users=12, n_places=8, n_days=1, seed=0).traces


def test_score_weighs_positive_cells_and_zeros_as_often_as_there_are():
    """Against a loop over all cells, each with the mean over the hidden ones of its kind."""
    rng = np.random.default_rng(0)
    dense = {name: rng.poisson(0.4, (4, 5, n)) for name, n in (("transitions", 5), ("visits", 3))}
    counts = CountTensors(**{name: sparse(each) for name, each in dense.items()})
    _, hidden = hide(counts, 0)
    predicted = {name: rng.normal(0.4, 0.3, (3, len(each.value))) for name, each in hidden.items()}
    logs = []
    for name, (_, value) in hidden.items():
        density = stats.norm(predicted[name], 0.5).pdf(value).mean(axis=0)
        own = {kind: np.log(density[(value > 0) == kind]).mean() for kind in (True, False)}
        logs += [own[bool(count)] for count in dense[name].ravel()]
    np.testing.assert_allclose(log_score(predicted, hidden, counts, 4.0), np.mean(logs))
    balanced = np.mean([np.log(stats.norm(predicted["visits"], 0.5).pdf(hidden["visits"].value).mean(0)).mean()])
    assert abs(balanced - np.mean(logs)) > 0.01


def test_zeros_are_hidden_in_no_larger_share_than_positive_cells(train):
    """Of few cells, a hundred zeros would be all, and chains would see none."""
    counts = count_tensors(train, Trimming(), seed=0)
    _, hidden = hide(counts, 0)
    for name, (index, value) in hidden.items():
        per_user = np.bincount(index[value == 0][:, 0], minlength=train.n_users)
        assert 0 < per_user.max() <= 0.05 * getattr(counts, name).cells_per_user


def test_a_tensor_without_positive_cells_is_judged_by_its_zeros(train):
    """People with one event each have no transitions."""
    counts = count_tensors(train.select_events(np.append(True, np.diff(train.user) > 0)), Trimming(), seed=0)
    _, hidden = hide(counts, 0)
    assert not hidden["transitions"].value.any()
    assert hidden["visits"].value.any()
    assert np.isfinite(
        log_score({name: np.ones((1, len(each.value))) for name, each in hidden.items()}, hidden, counts, 1.0)
    )


def test_chains_see_no_held_out_cell_and_broken_ones_fail(train, monkeypatch):
    counts, seen = count_tensors(train, Trimming(), seed=0), []

    def spy(shown, zeros, n_zeros, *, seed, hidden):
        listed = list_cells(shown, zeros, n_zeros, seed=seed, hidden=hidden)
        seen.append({name: set(map(tuple, np.asarray(each.index).tolist())) for name, each in listed.items()})
        return observe(shown, zeros, n_zeros, seed=seed, hidden=hidden)

    monkeypatch.setattr(selection, "observe", spy)
    score = selection._score_of_chains(counts, SHARED, 0)
    assert selection.FAILED < score(2, 2, 10.0, 1000) < 0
    assert score(2, 2, 1e38, 1000) == selection.FAILED
    (cells,) = seen
    for name, each in hide(counts, 0)[1].items():
        away = set(map(tuple, each.index.tolist()))
        assert not cells[name] & away
        assert len(cells[name]) + len(away) == np.prod(getattr(counts, name).shape)
    monkeypatch.setattr(selection, "available_bytes", lambda: 1000)
    assert score(2, 2, 10.0, 1000) == selection.FAILED


def test_settings_without_a_score_are_not_chosen(train, monkeypatch):
    scores = {16: selection.FAILED}
    monkeypatch.setattr(selection, "_score_of_chains", lambda *_: lambda n_sweeps, rank, *_: scores.get(rank, 1.0))
    given = PUBLISHED | {"rank": "auto"}
    assert choose_settings(train, Trimming(), SHARED, given, 0) == ({"rank": 8}, 0.0)
    scores |= dict.fromkeys((8, 32), selection.FAILED)
    with pytest.raises(NumericalError, match="give rank as numbers"):
        choose_settings(train, Trimming(), SHARED, given, 0)


AUTO = dict.fromkeys(PUBLISHED, "auto")


@pytest.mark.parametrize(
    ("given", "best", "n_chains"),
    [
        (AUTO, {"rank": 32, "noise_precision": 50.0, "n_zeros": 3000}, [14, 6, 4]),
        (AUTO | {"n_zeros": 7}, {"rank": 32, "noise_precision": 50.0, "n_zeros": 7}, [6, 4, 3]),
        (PUBLISHED | {"rank": "auto"}, PUBLISHED | {"rank": 32}, [3, 2, 2]),
    ],
)
def test_search_finds_the_best_of_the_grid(train, monkeypatch, given, best, n_chains):
    asked = []

    def known(counts, coupling, seed):
        def score(n_sweeps, *candidate):
            asked.append((n_sweeps, candidate))
            return -float(sum(a != b for a, b in zip(candidate, (32, 50.0, 3000), strict=True)))

        return score

    monkeypatch.setattr(selection, "_score_of_chains", known)
    found, gain = choose_settings(train, Trimming(), SHARED, given, seed=0)
    assert found == {name: best[name] for name in best if given[name] == "auto"}
    assert gain == sum(best[name] != (PUBLISHED | given)[name] for name in PUBLISHED if given[name] == "auto")
    # No chain runs twice; fewer settings are tried by more sweeps.
    assert len(set(asked)) == len(asked)
    tried = [sum(n == n_sweeps for n, _ in asked) for n_sweeps in SWEEPS]
    assert tried == sorted(tried, reverse=True) == n_chains
