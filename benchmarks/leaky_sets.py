"""Which lights do sets get that leak in known ways, and sets that do not leak?

    python benchmarks/leaky_sets.py ../shared --csv benchmarks/leaky_sets.csv
    python benchmarks/leaky_sets.py ../shared --controls 40

Half of the people are training users. A set has days, each of a person of its own:

- `nobody`: traces of a model of everybody (the bridge), so that training and test users are alike: nothing leaks;
- `others`: days of real people who are in neither set; the training and the test users are then a third each;
- `verbatim N`: `nobody`, and all days of so many training users (1, or a share) as they are;
- `hour later`: every day of every training user, one instant later;
- `splices`: half a day of one training user, and the other half of the next one;
- `rare places`: `nobody`, but where training users are at places of few people (a tenth of the visits), so is a trace;
- `training`: every day of every training user.

A row has the light of copies, `guess`, the light of what can be inferred, and `membership`, that of the attacks that
take seconds (likelihood ratio, density ratio, nearest trace). `copied` is the number of people copied, `noticed` the
least share of the people whose copies would be noticed, where nobody is counted. `--controls` makes so many sets of
`others`, and has the shares of those in which one person and two people are counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from common import Row, command_line, people_flow, record

from ppmtf_jax import Traces, fit, synthesize
from ppmtf_jax.attacks.copies import check_copies
from ppmtf_jax.attacks.inference import infer
from ppmtf_jax.attacks.membership import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.datasets.published import read_foursquare, read_gowalla
from ppmtf_jax.privacy.limits import worst
from ppmtf_jax.settings import parse_choice

COLUMNS = [
    "data",
    "set",
    "users",
    "copied",
    "noticed",
    "copies",
    "guess",
    "membership",
    "found_by",
]
SHARES = (0.01, 0.03, 0.07)
MEMBERSHIP = ("likelihood_ratio", "density_ratio", "density_ratio density=kernel", "nearest")
RARE_SHARE = 0.1


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--data", nargs="+", choices=DATA, default=tuple(DATA))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--controls", type=int, default=0, help="sets of other people, in place of sets that leak")
    arguments = parser.parse_args()
    if arguments.controls:
        record(controls(arguments))
    else:
        record(rows(arguments), arguments.csv, COLUMNS)


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    for name in arguments.data:
        everybody = DATA[name](arguments.shared)
        for what, released, train, test in leaky_sets(everybody, arguments.seed):
            yield {"data": name, "set": what, "users": train.n_users, **lights(released, train, test)}


def controls(arguments: argparse.Namespace) -> Iterator[Row]:
    for name in arguments.data:
        everybody, found = DATA[name](arguments.shared), []
        for number in range(arguments.controls):
            rng = np.random.default_rng([arguments.seed, number])
            train, test, others = thirds(everybody, rng)
            found.append(check_copies(days(others), train, test).n_copied)
        shares = {at_least: float(np.mean(np.array(found) >= n)) for at_least, n in (("one", 1), ("two", 2))}
        yield {"data": name, "sets": arguments.controls, **shares}


def lights(released: Traces, train: Traces, test: Traces) -> Row:
    """The lights of a set."""
    copies = check_copies(released, train, test)
    members = {}
    for text in MEMBERSHIP:
        entry, settings = parse_choice(text, MEMBERSHIP_ATTACKS)
        scores = infer_membership(released, train, test, entry.name, settings)
        members[text] = worst(scores.summary(n_attacks=len(MEMBERSHIP)).judgements())
    strongest = worst(list(members.values()))
    guesses = [each.judgement() for each in infer(released, train, test).values()]
    return {
        "copied": copies.n_copied,
        "noticed": copies.noticed_share,
        "copies": copies.judgement().status.word,
        "guess": worst(guesses).status.word,
        "membership": strongest.status.word,
        "found_by": next(text for text, each in members.items() if each is strongest),
    }


# The sets


def leaky_sets(everybody: Traces, seed: int) -> Iterator[tuple[str, Traces, Traces, Traces]]:
    """Name, released, training and test traces of each set."""
    rng = np.random.default_rng(seed)
    train, test, others = thirds(everybody, rng)
    yield "others", days(others), train, test
    halves = np.array_split(rng.permutation(everybody.n_users), 2)
    train, test = (everybody.select_users(np.sort(users)) for users in halves)
    nobody = days(synthesize(fit(everybody, "bridge", seed=seed), traces_per_user=1, seed=seed))
    yield "nobody", nobody, train, test
    users = rng.permutation(train.n_users)
    for n in (1, *(round(share * train.n_users) for share in SHARES)):
        copied = days(train.select_users(np.sort(users[:n])))
        yield f"verbatim {n}", beside(nobody, copied), train, test
    yield "hour later", days(train, later=1), train, test
    yield "splices", spliced(train), train, test
    yield "rare places", with_rare_places(nobody, train), train, test
    yield "training", days(train), train, test


def thirds(everybody: Traces, rng: np.random.Generator) -> list[Traces]:
    """Three random thirds of the users."""
    parts = np.array_split(rng.permutation(everybody.n_users), 3)
    return [everybody.select_users(np.sort(users)) for users in parts]


def days(traces: Traces, *, later: int = 0) -> Traces:
    """Every day, or other period, as a trace of a person of its own on one period; events may be later."""
    day, instant, _ = traces.periods(traces.time_grid.period)
    instant = instant + later
    kept = instant < traces.time_grid.period
    columns = day[kept], np.zeros(kept.sum(), int), instant[kept], traces.place[kept]
    return Traces.from_indices(*columns, np.arange(day[-1] + 1), traces.places, traces.time_grid.one_period())


def beside(traces: Traces, others: Traces) -> Traces:
    """The traces of both sets, each of people of its own."""
    frame, added = (each.to_frame() for each in (traces, others))
    frames = [frame, added.assign(user=added["user"] + frame["user"].max() + 1)]
    return Traces.from_frame(pd.concat(frames), traces.places, traces.time_grid)


def spliced(train: Traces) -> Traces:
    """The first half of each day, and the second half of the day of another user."""
    whole = days(train)
    frame, half = whole.to_frame(), whole.time_grid.n_instants // 2
    shifted = (frame["user"] + 1) % whole.n_users
    user = np.where(frame["instant"] < half, frame["user"], shifted)
    return Traces.from_frame(frame.assign(user=user), whole.places, whole.time_grid)


def with_rare_places(traces: Traces, train: Traces) -> Traces:
    """Traces with the true visits of training users to the places of the fewest people."""
    real = days(train)
    n_users = train.users_per_place()[real.place]
    rare = real.select_events(n_users <= np.quantile(n_users, RARE_SHARE)).to_frame()
    # A day of a training user is put on a trace of nobody, whose number is its own.
    rare = rare[rare["user"] < traces.n_users]
    frame = pd.concat([rare, traces.to_frame()]).drop_duplicates(["user", "instant"])
    return Traces.from_frame(frame, traces.places, traces.time_grid)


# The data


def _people_flow(shared: Path) -> Traces:
    train, test = people_flow(shared)
    return Traces.from_frame(pd.concat([train.to_frame(), test.to_frame()]), train.places, train.time_grid)


def _gowalla(shared: Path) -> Traces:
    file = shared / "data" / "gowalla-nyc" / "loc-gowalla_totalCheckins_NYC.txt.gz"
    return read_gowalla(file, time_zone="America/New_York")[0]


def _new_york(shared: Path) -> Traces:
    return read_foursquare(shared / "data" / "foursquare-tsmc2014-nyc")[0]


DATA = {"people flow": _people_flow, "Gowalla": _gowalla, "New York": _new_york}


if __name__ == "__main__":
    main()
