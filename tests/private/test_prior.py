"""Public priors from tables and trace sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.errors import InputError
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.prior import LEAST, read_prior
from tests.private.worlds import city, domain_of
from tests.support import minutes, places_in_line, to_traces


@pytest.fixture(scope="module")
def traces():
    return city("both")


def test_a_table_of_venues_is_spread_to_the_places_around(tmp_path, traces):
    domain, file = domain_of(traces), tmp_path / "venues.csv"
    places = traces.places
    pd.DataFrame({"lat": [places.latitude[7]] * 2, "lon": [places.longitude[7]] * 2, "weight": [3, 1]}).to_csv(file)
    prior = read_prior(file, domain)
    assert prior.shape == (domain.n_slots, domain.n_places)
    assert (prior > 0).all()
    km = domain.space.km[7]
    # The nearer the place, the larger its weight.
    assert (np.diff(prior[0][np.argsort(km, kind="stable")]) <= 1e-12).all()
    assert prior[0].argmax() == 7


def test_weights_of_known_places_need_no_coordinates(tmp_path):
    nowhere = np.full(3, np.nan)
    domain = Domain.of(PlaceTable(np.array(["a", "b", "c"], object), nowhere, nowhere), minutes(4))
    file = tmp_path / "weights.csv"
    pd.DataFrame({"place": ["c", "a", "x"], "weight": [6.0, 2.0, 9.0]}).to_csv(file, index=False)
    share = read_prior(file, domain)[0]
    np.testing.assert_allclose(share / share.sum(), [0.25, 0, 0.75], atol=2 * LEAST)


def test_a_trace_set_says_when_places_are_popular(tmp_path):
    places, grid = places_in_line(4), minutes(2)
    domain = Domain.of(places, grid)
    public = to_traces([(user, 0, i, 3 * i) for user in range(5) for i in range(2)], places, grid)
    public.save(tmp_path / "public")
    prior = read_prior(tmp_path / "public", domain, "digest of others")
    assert prior[0].argmax() == 0
    assert prior[1].argmax() == 3
    with pytest.raises(InputError, match="a public prior; found the training traces"):
        read_prior(tmp_path / "public", domain, public.digest)
    with pytest.raises(InputError, match="slots in"):
        read_prior(tmp_path / "public", Domain.of(places, minutes(3)))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"lat": [35.0], "lon": [139.0], "weight": [-1]}, "weights of at least 0"),
        ({"name": ["a"]}, "Missing: latitude, longitude"),
        ({"lat": [-35.0], "lon": [20.0]}, "weights at or near the places of the traces"),
    ],
)
def test_other_tables_are_refused(tmp_path, traces, table, message):
    file = tmp_path / "table.csv"
    pd.DataFrame(table).to_csv(file, index=False)
    with pytest.raises(InputError, match=message):
        read_prior(file, domain_of(traces))
