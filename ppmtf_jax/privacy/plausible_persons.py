"""The counts of `plausible_users` for trace models of persons, which give a probability only to a whole trace."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.errors import NumericalError
from ppmtf_jax.trace_models.persons import PersonModel

# Maximum number of log-probabilities that are computed together.
NUMBERS_AT_A_TIME = 2**22


def count_plausible_persons(
    model: PersonModel,
    verifiers: Int[np.ndarray, " verifier"],
    users: Int[np.ndarray, " trace"],
    places: Int[np.ndarray, "trace instant"],
    own: Float[np.ndarray, " trace"],
    eta: float,
    stop_at: Int[np.ndarray, " trace"] | None = None,
    progress: bool = False,
) -> tuple[Int[np.ndarray, " trace"], Int[np.ndarray, " trace"]]:
    """Count the plausible users of each trace; arguments and results are those of `count_plausible_users`.

    Verifiers in the input user's class count as plausible without a comparison. If the count is then below `stop_at`,
    the trace is compared with all other classes, in one round. Raises `NumericalError` if a log-probability is NaN.
    """
    stop_at = np.full(len(users), np.iinfo(np.int64).max) if stop_at is None else stop_at
    class_of_user = model.user_classes(int(max(verifiers.max(), users.max())) + 1)
    classes, n_verifiers = np.unique(class_of_user[verifiers], return_counts=True)
    own_class = class_of_user[users]
    is_own = own_class[:, None] == classes
    count = 1 + is_own @ n_verifiers - np.isin(users, verifiers)
    asked = np.zeros(len(users), np.int64)
    active = np.flatnonzero(count < stop_at)
    size = max(1, NUMBERS_AT_A_TIME // len(classes))
    for rows in np.split(active, range(size, len(active), size)):
        if len(rows) and not is_own[rows].all():
            found = model.log_traces(places[rows], classes, progress=progress)
            if np.isnan(found).any():
                raise NumericalError("the model gives log-probabilities that are not numbers")
            # The same bins as in `likelihood_bin`. JAX may compute that function only in single precision.
            same_bin = np.floor(-found / eta) == np.floor(-own[rows] / eta)[:, None]
            count[rows] += (same_bin & ~is_own[rows]) @ n_verifiers
            asked[rows] = n_verifiers.sum()
    return np.minimum(count, np.maximum(stop_at, 1)), asked
