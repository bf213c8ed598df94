"""How well shadow models tell whose data was used: by system, by statistic, and by how many there are.

    python benchmarks/membership.py ../shared --csv benchmarks/membership.csv

The data are people flow: 500 training users and 500 other users. Each system makes ten traces of each training user,
and releases the traces that pass the privacy test (k = 10, eta = 1); a system that knows no users makes as many traces,
without a test. Each row is an attack. "released": an attack on one release, with intervals over users. "held out": each
shadow model in turn is attacked with the help of the others; the row has the mean over the attacked models and 1.96
standard errors. "control": the same attack, but the members of each model are drawn anew at random, so there is nothing
to find. The bridge has no memory here; `people.py attacks` attacks the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import Row, command_line, measured, people_flow, record

from ppmtf_jax import Traces, fit, plausible_deniability_test, synthesize
from ppmtf_jax.attacks.membership import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.attacks.membership.base import MembershipScores
from ppmtf_jax.attacks.membership.shadow_models import (
    ShadowCheckpoint,
    ShadowModelSettings,
    Target,
    Wanted,
    learn_shadows,
    made_like,
)
from ppmtf_jax.attacks.membership.shadow_statistics import MIN_SHADOWS, STATISTICS, Shadows
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.settings import parse_choice
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

TEST = {"k": 10, "eta": 1.0}
TRACES_PER_USER = 10
OTHERS = ("likelihood_ratio", "density_ratio", "density_ratio density=kernel")
COLUMNS = ["system", "measured", "attack", "shadows", "traces", "auc", "auc_low", "auc_high", "found_at_1_percent"]
COLUMNS += ["found_low", "found_high", "seconds"]
NUMBERS = (6, 8, 12, 16, 20, 30)
FEWEST = MIN_SHADOWS + 2
"""A held-out shadow model is attacked without the two models of its pair; enough other models must remain."""


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--systems", nargs="+", default=("bridge memory=none", "ppmtf"))
    parser.add_argument("--shadows", type=int, default=16, help=f"even, at least {FEWEST}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder of finished shadow models; a stopped run continues from them")
    arguments = parser.parse_args()
    train, test = people_flow(arguments.shared)
    rows = (
        {"system": system, **row}
        for system in arguments.systems
        for row in attacked(system, train, test, arguments.shadows, arguments.seed, arguments.keep)
    )
    record(rows, arguments.csv, COLUMNS)


def attacked(system: str, train: Traces, test: Traces, n_shadows: int, seed: int, keep: Path | None) -> Iterator[Row]:
    """Rows of all attacks on a system."""
    if n_shadows < FEWEST or n_shadows % 2:
        raise SystemExit(f"--shadows: an even number of at least {FEWEST}")
    entry, chosen = parse_choice(system, SYNTHESIZERS)
    model = fit(train, entry.name, chosen, seed=seed)
    test_of = None if model.of_nobody else TEST
    if model.of_nobody:
        released = synthesize(model, people=TRACES_PER_USER * train.n_users, seed=seed)
    else:
        synthetic = synthesize(model, traces_per_user=TRACES_PER_USER, seed=seed)
        released = synthetic.select_traces(plausible_deniability_test(model, synthetic, seed=seed, **TEST).passed)
    n_traces = len(released.trace_table()[0])
    settings = ShadowModelSettings(entry.name, model.settings, test_of, n_shadows)
    target, wanted = Target.of(released, train, test, seed=seed), Wanted(n_traces, TRACES_PER_USER)
    kept = None if keep is None else ShadowCheckpoint(keep / f"{system} {seed}.npz", f"{system} {seed}")
    shadows, took = measured(
        learn_shadows,
        target,
        lambda traces, its_seed: made_like(traces, settings, wanted, its_seed),
        n_shadows,
        seed=seed,
        kept=kept,
        say=lambda text: print(text, flush=True),
    )
    seconds = took["seconds"] / n_shadows
    for name in OTHERS:
        attack, given = parse_choice(name, MEMBERSHIP_ATTACKS)
        yield _of_release(name, infer_membership(released, train, test, attack.name, given, seed=seed), n_traces)
    yield {**_of_release("shadow models", target.scores(shadows), n_traces), "shadows": n_shadows, "seconds": seconds}
    for number, name in enumerate(STATISTICS):
        alone = Shadows(shadows.statistics[:, [number]], shadows.is_in)
        yield {"measured": "held out", "attack": name, "shadows": n_shadows - 2, **_on_average(alone, n_shadows - 2)}
    for number in (*(each for each in NUMBERS if each < n_shadows - 2), n_shadows - 2):
        yield {"measured": "held out", "attack": "shadow models", "shadows": number, **_on_average(shadows, number)}
    found = _on_average(Shadows(shadows.statistics, _drawn_anew(shadows.is_in, seed)), n_shadows - 2)
    yield {"measured": "control", "attack": "shadow models", "shadows": n_shadows - 2, **found}


def _of_release(name: str, scores: MembershipScores, n_traces: int) -> Row:
    auc, rate = scores.estimate(lambda roc: roc.auc), scores.true_positive_rate(0.01)
    return {
        "measured": "released",
        "attack": name,
        "shadows": 0,
        "traces": n_traces,
        "auc": auc.value,
        "auc_low": auc.low,
        "auc_high": auc.high,
        "found_at_1_percent": rate.value,
        "found_low": rate.low,
        "found_high": rate.high,
    }


def _on_average(shadows: Shadows, n_others: int) -> dict[str, float]:
    """Attack each model in turn with so many other models, but never with the model of the other half of its users."""
    number, found = np.arange(len(shadows.is_in)), []
    for pair in number.reshape(-1, 2):
        others = np.setdiff1d(number, pair)[:n_others]
        known = Shadows(shadows.statistics[others], shadows.is_in[others])
        for each in pair:
            score, is_in = known.score(shadows.statistics[each]), shadows.is_in[each]
            roc = Roc.of(score[is_in], score[~is_in])
            found.append((roc.auc, roc.true_positive_rate_at(0.01)))
    # Both models of a pair come from the same split of the users.
    of_pair = np.array(found).reshape(-1, 2, 2).mean(axis=1)
    mean, error = of_pair.mean(axis=0), 1.96 * of_pair.std(axis=0, ddof=1) / np.sqrt(len(of_pair))
    names = ("auc", "found_at_1_percent"), ("auc_low", "found_low"), ("auc_high", "found_high")
    ends = (mean, mean - error, mean + error)
    return {
        name: float(each) for pair, end in zip(names, ends, strict=True) for name, each in zip(pair, end, strict=True)
    }


def _drawn_anew(is_in: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 1])
    half = rng.permuted(is_in[::2], axis=1)
    return np.stack([half, ~half], axis=1).reshape(is_in.shape)


if __name__ == "__main__":
    main()
