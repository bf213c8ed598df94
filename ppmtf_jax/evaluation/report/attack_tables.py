"""What attacks found, as tables: the report and `ppmtf attack` show the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ppmtf_jax.attacks.audit import Reidentified
from ppmtf_jax.attacks.copies import COPY_TITLES, EXPOSED_TITLE, CopyCheck
from ppmtf_jax.attacks.membership.scores import MembershipSummary
from ppmtf_jax.evaluation.report.blocks import Table, percent

MIN_OTHERS = 100
"""With fewer other users, a share found at 1 % false alarms is not known."""


def identity_table(attacks: Sequence[Reidentified]) -> Table:
    """Each attack on single traces, and on all traces of a person together."""
    rows = []
    for attack in attacks:
        for which, linkage in (("one by one", attack.each), ("all of a person", attack.combined)):
            low, high = linkage.auc_interval
            area = f"{linkage.auc:.3f}", f"{low:.2f}-{high:.2f}"
            found = percent(linkage.true_positive_rate[0.01], 1), str(linkage.n_exposed)
            rows.append([attack.title, which, percent(linkage.accuracy, 1), *area, *found])
    n = attacks[0].each.n_targets
    caption = (
        f"Attacks by somebody who knows traces of {n:,} people. Right person: how often the attacker names the right "
        f"one of {n:,} (a guess: {percent(1 / n, 2)}). AUC: how often a trace made from a person scores higher for "
        "this person than another trace (a guess: 0.5). Found: share of a person's own traces that are found with 1 % "
        "false alarms. People exposed: people with a trace that scores higher than chance explains (0.05 people by "
        "chance, over all attacks)"
    )
    headings = ("Attack", "Traces", "Right person", "AUC", "95 %", "Found at 1 %", "People exposed")
    return Table(caption, headings, rows, n_words=2)


def membership_table(summaries: Mapping[str, MembershipSummary]) -> Table:
    """A row for each attack, by its title."""
    rows = []
    for title, each in summaries.items():
        found, auc = each.tpr_at_1_percent, each.auc
        rate = f"{percent(found.value, 1)} ({100 * found.low:.0f}-{100 * found.high:.0f})"
        area = f"{auc.value:.3f}", f"{auc.low:.2f}-{auc.high:.2f}"
        advantage = f"{each.advantage.value:.3f}", f"{each.chance:.3f}"
        rows.append([title, *area, *advantage, rate if each.n_others >= MIN_OTHERS else "-", f"{len(each.exposed):,}"])
    n_members, n_others = (max(getattr(each, n) for each in summaries.values()) for n in ("n_members", "n_others"))
    caption = (
        f"Up to {n_members:,} training users and {n_others:,} others. AUC: how often a training user scores higher "
        "than another user (a guess: 0.5). Advantage: greatest difference between the shares of true and of false "
        "alarms, and its value by chance. Found: share of the training users found with 1 % false alarms, and its 95 % "
        f"interval, if there are {MIN_OTHERS} others to know it. People exposed: training users who score higher than "
        "chance explains (0.05 people by chance, over all attacks)"
    )
    headings = ("Attack", "AUC", "95 %", "Advantage", "by chance", "Found at 1 %", "People exposed")
    return Table(caption, headings, rows)


def copies_table(found: CopyCheck) -> Table:
    """What training users and test users find of their traces in synthetic traces."""
    rows = []
    for name, title in COPY_TITLES.items():
        each = getattr(found, name)
        means = (f"{numbers.mean():.1f}" for numbers in (each.training, each.test))
        rows.append([title, *means, percent(each.share_far, 1), f"{each.exposed.sum():,}"])
    rows.append([EXPOSED_TITLE, "", "", "", f"{found.n_exposed:,}"])
    caption = (
        "How much people find of their own traces in synthetic traces, in nats: training users, and people whose data "
        "was not used (test users). Far above: share of the training users above 95 % of the test users (5 % by "
        "chance). People exposed: training users who find more than chance explains (0.05 people by chance). At most "
        "4,000 periods of each set are looked for, of people drawn at random"
    )
    return Table(caption, ("What", "Training", "Test", "Far above", "People exposed"), rows)


def unicity_table(shares: Mapping[str, np.ndarray], crowd: int | None = None) -> Table:
    """Share of people identified by 1, 2, ... known points, for each set by its title."""
    points = [f"{n} point{'s' * (n > 1)}" for n in range(1, len(next(iter(shares.values()))) + 1)]
    rows = [[title, *(percent(share, 1) for share in each)] for title, each in shares.items()]
    of = "" if crowd is None else f", in crowds of {crowd:,} people"
    caption = f"Share of people whom this number of known points tells from all others{of}"
    return Table(caption, ("Traces", *points), rows)
