"""What chance does to the numbers of real people: standard errors, and the numbers of small samples of real traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ppmtf_jax.data.measurement import Comparison, part_of_trace
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.evaluation import EvaluationSettings, evaluate, uniform_places
from ppmtf_jax.evaluation.judgement import Chance
from ppmtf_jax.streams import Stage, numpy_stream

N_PARTS = 10
MAX_USERS = 2000
"""Largest number of users of a part: more users take longer, and do not make the standard errors more exact."""
MIN_USERS = 4
SEED = 0
PARTS, FEW = 8, 9
"""Random-stream numbers: metrics use smaller ones."""
N_FEW, MANY = 5, 20_000
"""Number of draws of as many real windows as there are synthetic traces. If the synthetic traces have as many events as
`MANY` complete periods, a draw takes long, and two draws are enough."""


def chance_of(train: Traces, test: Traces, synthetic: Traces) -> dict[str, Chance]:
    """What chance does to the numbers of an evaluation, by metric; attacks are left out.

    If there are fewer synthetic traces than windows of training users, random samples of as many windows are measured
    too, and synthetic traces with random places, because by chance alone, fewer traces are further from the test users.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=80, seed=0).traces.split_users(0.5, seed=0)
    >>> found = chance_of(train, test, train.select_users(np.arange(10)))
    >>> found["od_tv"].few > evaluate(train, train, test, EvaluationSettings(attacks=False))["od_tv"]
    True
    """

    def comparison(train: Traces, test: Traces) -> Comparison:
        return Comparison(train, train, test, synthetic.time_grid.n_instants, pool_traces=True)

    errors = standard_errors(lambda *sets: _numbers(comparison(*sets)), train, test)
    n_draws = N_FEW if synthetic.n_events < MANY * synthetic.time_grid.period else 2
    drawn: dict[str, list[float]] = {}
    for number in range(n_draws):
        for by_number, few in zip((True, False), few_real(train, synthetic, number), strict=True):
            if few is not None:
                for name, value in _numbers(comparison(train, test).of(few, pool_traces=True), by_number).items():
                    drawn.setdefault(name, []).append(value)
    found = {name: Chance(error) for name, error in errors.items()}
    random = evaluate(uniform_places(synthetic), train, test, EvaluationSettings(attacks=False)) if drawn else None
    few_uniform = {name: random[name] for name in random.metrics} if random else {}
    for name, values in drawn.items():
        # Numbers that are undefined in some draw are left out.
        if len(values) == n_draws and np.isfinite(values).all():
            spread = float(np.std(values, ddof=1))
            error = np.nan_to_num(errors.get(name, 0.0))
            found[name] = Chance(math.hypot(error, spread), float(np.mean(values)), few_uniform.get(name, math.nan))
    return found


def few_real(train: Traces, synthetic: Traces, number: int = 0) -> tuple[Traces | None, Traces | None]:
    """Random samples of training windows as long as synthetic traces; None where there are too few training windows.

    The first has as many events as the traces of one trace number, for metrics that are measured for each. The second
    has as many windows as there are synthetic traces. `number`: each number gives other samples.
    """
    piece = train.periods(synthetic.time_grid.n_instants).piece
    n_of_piece = np.bincount(piece)
    shuffled = numpy_stream(SEED, Stage.METRICS, FEW, number).permutation(np.flatnonzero(n_of_piece > 1))
    part = part_of_trace(synthetic)
    n_enough = int(np.searchsorted(np.cumsum(n_of_piece[shuffled]), synthetic.n_events / (int(part.max()) + 1))) + 1
    events, windows = (
        train.select_events(np.isin(piece, shuffled[:n])) if n < len(shuffled) else None for n in (n_enough, len(part))
    )
    return events, windows


def standard_errors(
    numbers: Callable[[Traces, Traces], Mapping[str, float]], train: Traces, test: Traces
) -> dict[str, float]:
    """Standard errors of numbers, by name, that a function computes of training and of test users.

    The numbers are computed again for ten random parts of the training users and of the test users: half of the users
    or less. For a share f of the users, drawn without replacement, the variance of a statistic over such parts is
    (1 - f) / f times the variance of the statistic of all users (Shao and Wu 1989: the delete-d jackknife). A number
    that is undefined for a part has the error NaN; if a set has fewer than four users, there are no errors.

    References
    ----------
    Shao and Wu 1989, A general theory for jackknife variance estimation, The Annals of Statistics 17.
    """
    if min(train.n_users, test.n_users) < MIN_USERS:
        return {}
    share = min(0.5, MAX_USERS / max(train.n_users, test.n_users))
    found: dict[str, list[float]] = {}
    for number in range(N_PARTS):
        stream = numpy_stream(SEED, Stage.METRICS, PARTS, number)
        drawn = (stream.permutation(each.n_users)[: max(round(share * each.n_users), 2)] for each in (train, test))
        parts = (each.select_users(users) for each, users in zip((train, test), drawn, strict=True))
        for name, value in numbers(*parts).items():
            found.setdefault(name, []).append(value)
    scale = math.sqrt(share / (1 - share))
    # A number that some parts do not have gets no standard error.
    return {name: scale * float(np.std(values, ddof=1)) for name, values in found.items() if len(values) == N_PARTS}


def _numbers(comparison: Comparison, of_single_numbers: bool | None = None) -> dict[str, float]:
    """The numbers of a comparison, NaN where they cannot be computed: all, or those (not) measured by trace number."""
    found: dict[str, float] = {}
    for each in EvaluationSettings(attacks=False).measurements():
        if of_single_numbers not in (None, each.measurement.per_trace_number) or not each.applies(comparison):
            continue
        try:
            found |= each.by_name(each.measurement.measure, comparison)
        except InputError:
            found |= dict.fromkeys((quantity.name for quantity in each.quantities), math.nan)
    return found
