"""What the synthetic traces of every system give away: whose they are, and who was in the data.

    python benchmarks/attacks.py --data toy-city --traces 1 --csv benchmarks/attacks.csv
    python benchmarks/attacks.py ../shared --data people-flow

People flow, or the simulated city, split in two halves of users; ten traces of each training user, before any privacy
test. Identity: the attacker has the whole training set, and asks of each trace by which training user it was made;
there are no strangers, so the area under the curve is that against the other training users. Membership: who of all
users was a training user. Shadow models are learned of systems that take seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ppmtf_jax import Traces, fit, synthesize, toy_city
from ppmtf_jax.attacks.audit import reidentification_attacks
from ppmtf_jax.attacks.membership import infer_membership
from ppmtf_jax.datasets.people_flow import read_people_flow
from ppmtf_jax.runtime.devices import use_all_cores
from ppmtf_jax.settings import parse_choice
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = ("training", "ppmtf", "sgd", "sgd n_copied=2", "sglt remove_true_prob=0.4", "bridge", "tpm", "uniform")
ESTIMATORS = ("ml", "ml floor=1e-3", "tf", "gstf beta=0.3")
MEMBERSHIP = ("likelihood_ratio", "density_ratio", "density_ratio density=kernel")
SHADOWED, N_SHADOWS = ("sgd", "bridge", "uniform"), 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, nargs="?", default=ROOT.parent / "shared", help="folder of the data")
    parser.add_argument("--data", choices=("people-flow", "toy-city"), default="people-flow")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    parser.add_argument("--traces", type=int, default=10, help="of each training user")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    use_all_cores()
    train, test = _halves(arguments.data, arguments.shared)
    rows = []
    for system in arguments.systems:
        entry, settings = parse_choice(system, SYNTHESIZERS)
        model = fit(train, entry.name, settings, seed=arguments.seed)
        synthetic = synthesize(model, traces_per_user=arguments.traces, seed=arguments.seed)
        for row in attacked(system, synthetic, train, test, arguments.seed):
            rows.append({"data": arguments.data, "system": system, **row})
            print(*(f"{name} {_text(value)}" for name, value in rows[-1].items()), sep="  ", flush=True)
    table = pd.DataFrame(rows)
    print(table.pivot_table(index="attack", columns="system", values="auc", sort=False).to_string(float_format="%.3f"))
    if arguments.csv is not None:
        table.to_csv(arguments.csv, index=False, float_format="%.4f")


def attacked(system: str, synthetic: Traces, train: Traces, test: Traces, seed: int) -> Iterator[dict[str, Any]]:
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
    attacks = [*MEMBERSHIP, f"shadow_models system={system} n_shadows={N_SHADOWS}"][: 4 if system in SHADOWED else 3]
    for name in attacks:
        attack, *given = name.split()
        settings = dict(each.split("=") for each in given)
        if "n_shadows" in settings:
            settings["n_shadows"] = N_SHADOWS
        began = time.perf_counter()
        summary = infer_membership(synthetic, train, test, attack, seed=seed, **settings).summary(seed=seed)
        yield {
            "attack": f"membership: {' '.join([attack, *(text for text in given if text.startswith('density'))])}",
            "auc": summary.auc.value,
            "low": summary.auc.low,
            "high": summary.auc.high,
            "found_at_1_percent": summary.tpr_at_1_percent.value,
            "advantage": summary.advantage.value,
            "chance": summary.chance,
            "seconds": time.perf_counter() - began,
        }


def _halves(data: str, shared: Path) -> tuple[Traces, Traces]:
    if data == "people-flow":
        return read_people_flow(shared / "reference" / "people_flow")
    # SGLT needs traces without gaps.
    return toy_city(n_users=800, n_days=1, n_places=100, missing=0.0, seed=0).traces.split_users(0.5, seed=0)


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
