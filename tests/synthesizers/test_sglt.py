"""SGLT as a whole: what it refuses, what it does with odd data, and the published figures."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.people_flow import read_people_flow
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import evaluate
from ppmtf_jax.runtime import memory
from ppmtf_jax.semantics.places import SeedTraces, VisitProfiles
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.systems import sglt
from ppmtf_jax.synthesizers.systems.sglt import (
    PLACE_PAIR_BYTES,
    SGLT,
    USER_PLACE_BYTES,
    SGLTSettings,
    model_of_clusters,
)
from tests.support import minutes, places_in_line, random_traces

USERS, PLACES, INSTANTS = 70, 20, 6


@pytest.fixture(scope="module")
def train() -> Traces:
    return random_traces(0, range(USERS), places_in_line(PLACES), minutes(INSTANTS), n_visited=PLACES - 3)


@pytest.fixture(scope="module")
def fitted(train) -> FittedModel:
    return fit(train, "sglt", seed=0)


@pytest.fixture(scope="module")
def synthetic(fitted) -> Traces:
    return synthesize(fitted, traces_per_user=5, seed=0)


def places_of(traces: Traces, traces_per_user: int) -> np.ndarray:
    return traces.place.reshape(traces.n_users, traces_per_user, -1)


# Bad input


def test_impossible_settings_are_refused():
    with pytest.raises(InputError, match=r"(?s)n_clusters.*merge_prob.*remove_true_prob.*randomization"):
        SGLTSettings(n_clusters=0, merge_prob=-0.1, remove_true_prob=float("nan"), randomization=0.5)


def test_more_clusters_than_places_are_refused(train):
    with pytest.raises(InputError, match="n_clusters up to 20, the number of places; found 21"):
        fit(train, "sglt", n_clusters=21)


def test_more_time_periods_than_instants_are_refused(train):
    with pytest.raises(InputError, match="n_time_periods up to 6, the instants of a seed; found 7"):
        fit(train, "sglt", n_time_periods=7)


def test_time_periods_count_in_the_memory_that_a_fit_needs(train, monkeypatch):
    """The ranks of each user's places are kept for each time period: 4 bytes a user, place and period."""
    fits = PLACE_PAIR_BYTES * PLACES**2 + USER_PLACE_BYTES * USERS * PLACES
    for module in (memory, sglt):
        monkeypatch.setattr(module, "available_bytes", lambda: fits + 3 * 4 * USERS * PLACES)
    fit(train, "sglt", n_time_periods=4)
    with pytest.raises(InputError, match="of memory"):
        fit(train, "sglt", n_time_periods=5)
    assert VisitProfiles.of(SeedTraces.of(train)).place.base is None


def test_one_user_is_refused(train):
    with pytest.raises(InputError, match="at least two users; found 1"):
        fit(train.select_users(np.array([0])), "sglt")


def test_missing_events_are_refused():
    gaps = random_traces(0, range(9), places_in_line(5), minutes(INSTANTS), keep=0.8)
    with pytest.raises(InputError, match="need complete traces: complete them first"):
        fit(gaps, "sglt")


def test_a_changed_model_folder_is_refused(fitted):
    arrays = fitted.trace_model.to_arrays()
    wrong = [{"cluster": arrays["cluster"] + 10}, {"seed_start": arrays["seed_start"] + 1}]
    wrong.append({"seed_start": np.append(np.zeros(2, int), arrays["seed_start"][2:])})
    for change in wrong:
        with pytest.raises(ValueError, match=r"beyond the last|belong to one user"):
            SGLT.from_arrays(arrays | change)


# Odd data


def test_people_with_nothing_to_tell_apart():
    """One place, where nobody moves; one instant; all places at one point, most of them never visited."""
    together = PlaceTable(np.arange(PLACES), np.full(PLACES, 35.0), np.full(PLACES, 139.0))
    for places, grid, n_visited in (
        (places_in_line(1), minutes(4), 1),
        (places_in_line(6), minutes(1), 5),
        (together, minutes(INSTANTS), 2),
    ):
        traces = random_traces(1, range(USERS), places, grid, n_visited=n_visited)
        synthetic = synthesize(fit(traces, "sglt", seed=0), traces_per_user=5, seed=0)
        assert places_of(synthetic, 5).shape == (USERS, 5, grid.n_instants)
        assert synthetic.place.max() < len(places)


def test_each_period_of_a_user_is_one_of_their_seeds():
    """User u goes from place 3 u to the next on even days, and from there to the one after on odd ones.

    A place is a cluster of its own, so that without removal nothing hides the seed.
    """
    grid = TimeGrid("2024-01-01T00:00:00", 60, np.tile(np.arange(2), 6), period=2)
    user, instant = (index.ravel() for index in np.indices((4, grid.n_instants)))
    frame = pd.DataFrame({"user": user, "instant": instant, "place": 3 * user + instant // 2 % 2 + instant % 2})
    traces = Traces.from_frame(frame, places_in_line(12), grid)
    model = fit(traces, "sglt", SGLTSettings(n_clusters=12, remove_true_prob=0.0), seed=0)
    made = places_of(synthesize(model, traces_per_user=200, seed=0), 200)
    assert (made[..., 0] + 1 == made[..., 1]).all()
    odd = made[..., 0] - 3 * np.arange(4)[:, None]
    assert set(odd.ravel().tolist()) == {0, 1}
    # Of 800 fair draws, 5.5 standard deviations.
    assert abs(odd.mean() - 0.5) < 5.5 * np.sqrt(0.25 / 800)


# What it makes


def test_one_cluster_leaves_nothing_of_the_seed(train, fitted):
    settings = SGLTSettings(1, 0.0, remove_true_prob=0.0, randomization=1.0)
    seeds, together = SeedTraces.of(train), np.zeros(PLACES, int)
    one = replace(fitted, trace_model=model_of_clusters(seeds, train.places, together, settings))
    made = places_of(synthesize(one, traces_per_user=2, seed=0), 2)
    assert (made == made[0, 0]).all()


def test_traces_are_not_at_the_true_places(train, fitted, synthetic):
    made = places_of(synthetic, 5)
    own = train.place.reshape(USERS, 1, INSTANTS)
    cluster = np.asarray(fitted.trace_model.cluster)
    has_others = np.bincount(cluster)[cluster[own]] > 1
    assert not (made == own)[np.broadcast_to(has_others, made.shape)].any()


def test_similarity_and_number_of_clusters_can_be_chosen(train, fitted):
    few = train.select_users(np.arange(8))
    clusters = [
        np.asarray(fit(few, "sglt", n_clusters=5, seed=0, **chosen).trace_model.cluster)
        for chosen in ({}, {"n_time_periods": 2}, {"similarity": "transitions", "n_time_periods": 2})
    ]
    assert all(len(np.unique(cluster)) == 5 for cluster in clusters)
    assert len(np.unique(clusters, axis=0)) == 3


@pytest.mark.slow
def test_the_number_of_clusters_is_told_if_modularity_chooses_it(train):
    model = fit(train, "sglt", n_clusters="modularity", seed=0)
    n_clusters = len(np.unique(model.trace_model.cluster))
    assert 1 <= n_clusters <= PLACES // 2
    assert model.claims().settings["n_clusters"] == str(n_clusters)


def test_more_of_a_trace_is_true_the_less_is_removed(train):
    shares = []
    for probability in (0.0, 0.4, 1.0):
        model = fit(train, "sglt", SGLTSettings(remove_true_prob=probability), seed=0)
        made = places_of(synthesize(model, traces_per_user=5, seed=0), 5)
        shares.append((made == train.place.reshape(USERS, 1, INSTANTS)).mean())
    assert shares[0] > shares[1] + 0.05 > shares[2] + 0.1


def test_seeds_reproduce(train, fitted, synthetic, tmp_path):
    again = fit(train, "sglt", seed=0)
    assert again.checksum == fitted.checksum != fit(train, "sglt", seed=1).checksum
    fitted.save(tmp_path / "model")
    loaded = FittedModel.load(tmp_path / "model")
    assert loaded.checksum == fitted.checksum
    np.testing.assert_array_equal(synthesize(loaded, traces_per_user=5, seed=0).place, synthetic.place)
    assert loaded.summary()[0].startswith("5 clusters of ")


def test_a_release_tells_what_it_shows(train, fitted):
    # Shadow models take the number of clusters from the model that is attacked.
    assert fitted.settings_found()["n_clusters"] == 5
    assert len(fitted.claims().not_protected) == 1
    shown = fit(train, "sglt", remove_true_prob=0.25).claims().not_protected
    assert "allowed with probability 0.75" in shown[1]


# The published program

TOLERANCE = {"tp_tv": 0.01, "tp_tv_top50": 0.005, "tm_emd_y": 0.10, "tm_emd_x": 0.10, "reid_rate": 0.03}


@pytest.mark.slow
@pytest.mark.parametrize("remove_true_prob", [0.0, 0.2, 0.4, 1.0])
def test_the_published_figures_with_the_published_clusters(people_flow, remove_true_prob):
    """Clusters recovered from the official traces; a place of which nothing is known is a cluster alone."""
    train, test = read_people_flow(people_flow)
    official = pd.read_csv(people_flow / "sglt_c100_clusters.csv")["cluster"].to_numpy()
    alone = np.where(official < 0, len(official) + np.arange(len(official)), official)
    settings = SGLTSettings(remove_true_prob=remove_true_prob, joining="published")
    cluster = np.unique(alone, return_inverse=True)[1]
    trace_model = model_of_clusters(SeedTraces.of(train), train.places, cluster, settings)
    grid = train.time_grid.one_period()
    model = FittedModel("sglt", asdict(settings), 0, train.user_ids, train.places, grid, trace_model)
    evaluation = evaluate(synthesize(model, traces_per_user=10, seed=0), train, test)
    results = pd.read_csv(people_flow / "published_results.csv").set_index("setting")
    published = results.loc[f"c100_0.25_0.75_{remove_true_prob:g}_4"]
    for name, tolerance in TOLERANCE.items():
        assert evaluation.value(name, "synthetic") == pytest.approx(published[name], abs=tolerance), name
