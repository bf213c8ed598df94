"""The two verbs: learn a model from traces, and synthesize traces from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from ppmtf_jax.data.traces import Origin, Traces, check_traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.runtime.devices import gather_rows, own_share, seed_of_first_process
from ppmtf_jax.runtime.memory import available_bytes, require_memory
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.settings import chosen_settings
from ppmtf_jax.streams import Seed, Stage, draw_seed, jax_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS
from ppmtf_jax.trace_models.likelihoods import in_batches
from ppmtf_jax.trace_models.sampling import TILE, sample_tiles

# What synthesis and test take whatever the number of events.
SMALL_CONSTANT_BYTES = 200 * 2**20
# Places while drawn; user, trace, instant and place of the finished traces; indices from which they are made.
SYNTHETIC_EVENT_BYTES = 4 + 4 * 4 + 3 * 8


@dataclass(frozen=True)
class SynthesisSettings:
    """How many traces to synthesize.

    Parameters
    ----------
    traces_per_user : int
        How many from each user.
    """

    traces_per_user: int = 1

    def __post_init__(self) -> None:
        if self.traces_per_user < 1:
            raise InputError("synthesize", [Problem("traces_per_user of at least 1", repr(self.traces_per_user))])


def fit(
    train: Traces,
    system: str = DEFAULT_SYSTEM,
    settings: Any = None,
    *,
    seed: int | Seed | None = None,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
    **named_settings: Any,
) -> FittedModel:
    """Learn a generative model of traces.

    Parameters
    ----------
    train : Traces
    system : str
        Name of a synthesizer: see `synthesizers.registry.SYNTHESIZERS`.
    settings : the system's settings, such as `PPMTFSettings`; None for its defaults
    seed : int or Seed, optional
        Reproduces the fit. It is part of the secret, and comes from the operating system where none is given.
    progress : bool
        Show a progress bar where there is a terminal.
    checkpoints : Checkpoints, optional
        For a long fit: where to write its state, and to go on from. Give the seed too: a fit with another one is
        another fit. `jobs.resume.fit_resumably` keeps a drawn seed.
    **named_settings
        Settings by name, in place of `settings`.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> model = fit(toy_city(n_users=20, seed=0).traces, "sgd", n_copied=1, seed=0)
    >>> synthesize(model, traces_per_user=2, seed=1).n_users
    20
    """
    check_traces(train, "fit")
    synthesizer = SYNTHESIZERS[system]
    settings = chosen_settings(synthesizer.settings, settings, named_settings, system)
    own_seed = seed_of_first_process(draw_seed(seed))
    trace_model = synthesizer.fit(train, settings, own_seed.value, progress, checkpoints)
    grid = train.time_grid.one_period()
    return FittedModel(
        system, asdict(settings), own_seed.value, train.user_ids, train.places, grid, trace_model, own_seed.given
    )


def synthesize(
    model: FittedModel,
    settings: SynthesisSettings | None = None,
    *,
    seed: int | Seed | None = None,
    batch_users: int = 4096,
    progress: bool = False,
    **named_settings: Any,
) -> Traces:
    """Synthesize traces from every user of a model, one event at every instant of the model's grid.

    A trace depends on the seed, its user and its number alone: neither on `batch_users`, which bounds the memory, nor
    on how many traces are made. Several processes share the users, and all get the same traces; see `join_processes`.

    Parameters
    ----------
    settings : SynthesisSettings, optional
    seed : int or Seed, optional
        Reproduces the traces. It is part of the secret, and comes from the operating system where none is given.
    batch_users : int
        Users at a time, at least 1.
    progress : bool
        Show a progress bar where there is a terminal.
    **named_settings
        Settings by name, in place of `settings`: `synthesize(model, traces_per_user=2)`.

    Returns
    -------
    Traces
        With the input users' ids; trace numbers 0 to `traces_per_user` - 1. They are not fit for release: test them.
    """
    traces_per_user = chosen_settings(SynthesisSettings, settings, named_settings, "synthesize").traces_per_user
    if batch_users < 1:
        raise InputError("synthesize", [Problem("at least one user at a time", repr(batch_users))])
    own_seed = seed_of_first_process(draw_seed(seed))
    n_users, n_instants = model.n_users, model.time_grid.n_instants
    require_memory_to_synthesize(n_users, traces_per_user, n_instants)
    key, trace_model = jax_stream(own_seed.value, Stage.SYNTHESIS), on_each_device(model.trace_model)
    # Batches and shares are of whole tiles: how a user's numbers are rounded can depend on her place in the tile.
    own_users = np.arange(n_users)[own_share(n_users, TILE)]
    # Batches of one size, so that one program is compiled.
    n_batches = -(-len(own_users) // batch_users)
    batch_users = -(-len(own_users) // (n_batches * TILE)) * TILE
    place = np.empty((len(own_users), traces_per_user, n_instants), np.int32)
    with progress_bar("synthesizing", len(own_users) * traces_per_user, show=progress) as advance:
        jobs = [(users, number) for users in in_batches(own_users, batch_users) for number in range(traces_per_user)]

        def draw(job: tuple[np.ndarray, int]) -> np.ndarray:
            users, number = job
            tiles = jnp.asarray(np.resize(users, batch_users).reshape(-1, TILE))
            drawn = sample_tiles(key, trace_model(), tiles, number, n_instants)
            return np.asarray(drawn).reshape(-1, n_instants)[: len(users)]

        for (users, number), drawn in zip(jobs, map_in_threads(draw, jobs), strict=True):
            place[users - own_users[0], number] = drawn
            advance(len(users))
    place = gather_rows(place, n_users, TILE)
    user, trace, instant = (index.ravel().astype(np.int32) for index in np.indices(place.shape))
    origin = Origin(model.checksum, own_seed.value, model.seed_given or own_seed.given)
    made = Traces(user, trace, instant, place.ravel(), model.user_ids, model.places, model.time_grid)
    return replace(made, origin=origin)


def bytes_to_synthesize(n_events: int) -> int:
    """Estimate of the peak of synthesizing traces of so many events in all, bytes."""
    return SMALL_CONSTANT_BYTES + SYNTHETIC_EVENT_BYTES * n_events


def require_memory_to_synthesize(n_users: int, traces_per_user: int, n_instants: int) -> None:
    """Refuse to synthesize more traces than would fit, and say how many would; see `require_memory`."""
    per_user = ((available_bytes() or 0) - SMALL_CONSTANT_BYTES) // (SYNTHETIC_EVENT_BYTES * n_users * n_instants)
    way_out = f"Set traces_per_user={per_user}" if per_user >= 1 else "Take a model of fewer users"
    require_memory("synthesize", bytes_to_synthesize(n_users * traces_per_user * n_instants), way_out)
