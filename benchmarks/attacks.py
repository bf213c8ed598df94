"""What the synthetic traces of every system give away: whose they are, and who was in the data.

    python benchmarks/attacks.py --data toy-city --traces 1 --csv benchmarks/attacks.csv
    python benchmarks/attacks.py ../shared --data people-flow

The users of people flow, or of the simulated city, are split into two halves. Ten traces of each training user are
attacked, before any privacy test. Identity: the attacker has the whole training set, and asks from which training user
each trace was made. There are no strangers, so the area under the curve compares the right user with the other training
users. Membership: which of all users were training users? Shadow models are learned only for systems whose fit takes
seconds. The bridge has no memory here; `people.py attacks` attacks the default.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from common import Row, command_line, measured, people_flow, record

from ppmtf_jax import Traces, fit, synthesize, toy_city
from ppmtf_jax.attacks.audit import reidentification_attacks
from ppmtf_jax.attacks.membership import MEMBERSHIP_ATTACKS, infer_membership
from ppmtf_jax.attacks.membership.shadow_models import PEOPLE_OF_SHADOWS, ShadowModelSettings
from ppmtf_jax.runtime.devices import use_all_cores
from ppmtf_jax.settings import parse_choice
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

CHAINS = "bridge memory=none"
SYSTEMS = ("training", "ppmtf", "sgd", "sgd n_copied=2", "sglt remove_true_prob=0.4", CHAINS, "tpm", "uniform")
ESTIMATORS = ("ml", "ml floor=1e-3", "tf", "gstf beta=0.3")
MEMBERSHIP = ("likelihood_ratio", "density_ratio", "density_ratio density=kernel", "nearest")
COLUMNS = ["data", "system", "attack", "auc", "low", "high", "found_at_1_percent", "right_user", "seconds", "advantage"]
COLUMNS += ["chance"]
SHADOWED, N_SHADOWS = ("sgd", CHAINS, "uniform"), 8


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--data", choices=("people-flow", "toy-city"), default="people-flow")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    parser.add_argument("--traces", type=int, default=10, help="traces of each training user")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    use_all_cores()
    train, test = _halves(arguments.data, arguments.shared)
    table = pd.DataFrame(record(rows(arguments, train, test), arguments.csv, COLUMNS))
    print(table.pivot_table(index="attack", columns="system", values="auc", sort=False).to_string(float_format="%.3f"))


def rows(arguments: argparse.Namespace, train: Traces, test: Traces) -> Iterator[Row]:
    for system in arguments.systems:
        entry, settings = parse_choice(system, SYNTHESIZERS)
        model = fit(train, entry.name, settings, seed=arguments.seed)
        synthetic = synthesize(model, traces_per_user=arguments.traces, seed=arguments.seed)
        for row in attacked(system, synthetic, train, test, arguments.seed):
            yield {"data": arguments.data, "system": system, **row}


def attacked(system: str, synthetic: Traces, train: Traces, test: Traces, seed: int) -> Iterator[Row]:
    """A row for each attack."""
    for name in ESTIMATORS:
        [found] = reidentification_attacks(train, synthetic, [name], seed=seed)
        low, high = found.each.auc_interval
        rates = found.each.true_positive_rate
        yield {
            "attack": f"identity: {name}",
            "auc": found.each.auc,
            "low": low,
            "high": high,
            "found_at_1_percent": rates[0.01],
            "right_user": found.each.accuracy,
            "seconds": found.seconds,
        }
    attacks: dict[str, Any] = {name: parse_choice(name, MEMBERSHIP_ATTACKS)[1] for name in MEMBERSHIP}
    if system in SHADOWED:
        entry, chosen = parse_choice(system, SYNTHESIZERS)
        for people in PEOPLE_OF_SHADOWS:
            how = {"n_shadows": N_SHADOWS, "people": people}
            attacks[f"shadow_models people={people}"] = ShadowModelSettings(entry.name, asdict(chosen), **how)
    for name, settings in attacks.items():
        attack = name.split()[0]
        scores, took = measured(infer_membership, synthetic, train, test, attack, settings, seed=seed)
        summary = scores.summary(seed=seed)
        yield {
            "attack": f"membership: {name}",
            "auc": summary.auc.value,
            "low": summary.auc.low,
            "high": summary.auc.high,
            "found_at_1_percent": summary.tpr_at_1_percent.value,
            "advantage": summary.advantage.value,
            "chance": summary.chance,
            "seconds": took["seconds"],
        }


def _halves(data: str, shared: Path) -> tuple[Traces, Traces]:
    if data == "people-flow":
        return people_flow(shared)
    # SGLT needs traces without gaps.
    return toy_city(n_users=800, n_days=1, n_places=100, missing=0.0, seed=0).traces.split_users(0.5, seed=0)


if __name__ == "__main__":
    main()
