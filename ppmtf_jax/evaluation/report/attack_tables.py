"""What attacks found, as tables: the report and `ppmtf attack` show the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ppmtf_jax.attacks.audit import Reidentified
from ppmtf_jax.attacks.copies import CopyCheck
from ppmtf_jax.attacks.membership.base import MembershipSummary
from ppmtf_jax.evaluation.report.blocks import Table, percent

MIN_OTHERS = 100
"""With fewer other users, a share found at 1 % false alarms is not known."""


def identity_table(attacks: Sequence[Reidentified]) -> Table:
    """Each attack on single traces, and on all traces of a person together."""
    rows = []
    for attack in attacks:
        for which, linkage in (("one by one", attack.each), ("all of a person", attack.combined)):
            low, high = linkage.auc_interval
            found = percent(linkage.found, 1), str(linkage.n_exposed)
            area = f"{linkage.auc:.3f}", f"{low:.2f}-{high:.2f}"
            rows.append([attack.title, which, *found, percent(linkage.accuracy, 1), *area])
    n = attacks[0].each.n_targets
    caption = (
        f"Whose traces are these? Attacks by somebody who knows traces of {n:,} people. Found: people who are named "
        "right, where at most 1 % of the people are named wrongly. People exposed: people with a trace that scores "
        "higher than chance explains (0.05 people by chance, over all attacks). Right person: how often the attacker "
        f"names the right one of {n:,} (a guess: {percent(1 / n, 2)}). AUC: how often a trace made from a person "
        "scores higher for this person than another trace (a guess: 0.5)"
    )
    headings = ("Attack", "Traces", "Found", "People exposed", "Right person", "AUC", "95 %")
    return Table(caption, headings, rows, n_words=2)


def membership_table(summaries: Mapping[str, MembershipSummary]) -> Table:
    """A row for each attack, by its title."""
    rows = []
    for title, each in summaries.items():
        found, auc = each.tpr_at_1_percent, each.auc
        rate = f"{percent(found.value, 1)} ({100 * found.low:.0f}-{100 * found.high:.0f})"
        area = f"{auc.value:.3f}", f"{auc.low:.2f}-{auc.high:.2f}"
        advantage = f"{each.advantage.value:.3f}", f"{each.chance:.3f}"
        rows.append([title, rate if each.n_others >= MIN_OTHERS else "-", f"{len(each.exposed):,}", *area, *advantage])
    n_members, n_others = (max(getattr(each, n) for each in summaries.values()) for n in ("n_members", "n_others"))
    caption = (
        f"Whose data was used? Up to {n_members:,} training users and {n_others:,} others. Found: share of the "
        "training users found where at most 1 % of the others are named, and its 95 % interval, if there are "
        f"{MIN_OTHERS} others to know it. People exposed: training users who score higher than chance explains (0.05 "
        "people by chance, over all attacks). AUC: how often a training user scores higher than another user (a guess: "
        "0.5). Advantage: greatest difference between the shares of true and of false alarms, and its value by chance"
    )
    return Table(caption, ("Attack", "Found", "People exposed", "AUC", "95 %", "Advantage", "by chance"), rows)


def copies_table(found: CopyCheck) -> Table:
    """What training users and test users find of their traces in synthetic traces."""
    rows = [
        ["Found by training users, mean, nats", f"{found.training.mean():.1f}"],
        ["Found by test users, mean, nats", f"{found.test.mean():.1f}"],
        ["Training users who find more than 95 % of the test users do (5 % by chance)", percent(found.share_far, 1)],
        ["Training users who find more than chance explains, at least", f"{found.n_copied:,}"],
    ]
    caption = (
        "How much people find of a trace of theirs in one synthetic trace, as a whole or in a run of places: training "
        "users, and people whose data was not used (test users). The last number counts people who are far above all "
        "others, and people who are more often among the highest than an exchange of training and test users explains. "
        "At most 4,000 periods of each set are looked for, of people drawn at random"
    )
    return Table(caption, ("What", "Number"), rows)


def unicity_table(shares: Mapping[str, np.ndarray], crowd: int | None = None) -> Table:
    """Share of people identified by 1, 2, ... known points, for each set by its title."""
    points = [f"{n} point{'s' * (n > 1)}" for n in range(1, len(next(iter(shares.values()))) + 1)]
    rows = [[title, *(percent(share, 1) for share in each)] for title, each in shares.items()]
    of = "" if crowd is None else f", in crowds of {crowd:,} people"
    caption = f"Share of people whom this number of known points tells from all others{of}"
    return Table(caption, ("Traces", *points), rows)
