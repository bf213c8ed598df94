"""Readers that turn published data sets into `Traces`, and the functions that turn check-ins into events.

Every reader of check-ins returns the traces and an `ImportReport`, which says how many rows were kept and left out.
"""

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.discretize import Discretization, SpacedTraces
from ppmtf_jax.datasets.foursquare_www import read_foursquare_www
from ppmtf_jax.datasets.geolife import read_geolife
from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow, read_synthetic, read_tensor
from ppmtf_jax.datasets.places import GivenPlaces, GridPlaces, MostVisited, keep_shared_places
from ppmtf_jax.datasets.published import read_foursquare, read_gowalla, read_lbsn2vec
from ppmtf_jax.datasets.stays import StayPoints, find_stay_points
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.to_traces import discretize

__all__ = [
    "Discretization",
    "GivenPlaces",
    "GridPlaces",
    "ImportReport",
    "MostVisited",
    "SpacedTraces",
    "StayPoints",
    "discretize",
    "find_stay_points",
    "keep_shared_places",
    "read_checkins",
    "read_foursquare",
    "read_foursquare_www",
    "read_geolife",
    "read_gowalla",
    "read_lbsn2vec",
    "read_official_factors",
    "read_people_flow",
    "read_synthetic",
    "read_tensor",
]
