"""What one user weighs: by brute force over random neighbours, and on a planted person whose hours must not show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.bridge import contributions, moves, visits
from ppmtf_jax.bridge.contributions import PLACE_USERS, STEP_USERS, bounded, stretches, told
from ppmtf_jax.bridge.moves import Movement, MoveSmoothing, SeenMoves, Steps, fit_gravity, stay_rates
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.bridge.visits import BoundedCounts, PopulationSmoothing, Visits, population
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from tests.bridge.examples import place_table, traces_of

N_PLACES, N_NIGHTS = 8, 10
HOURS = TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 24 * N_NIGHTS, slot_s=3600)
PLACE_X, NIGHT, NOON = 7, slice(1, 7), 12
