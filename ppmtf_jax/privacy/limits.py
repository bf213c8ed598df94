"""All thresholds by which the library judges a result as safe enough or too risky.

Statements, lights, alarms and refusals all use these thresholds, so that they cannot disagree. The result of an attack
is an estimate from a limited number of people. It is judged by its 95 % interval, as a cautious data protection officer
would judge it: the light is good only if the leak is shown to be small. See `Limit` for the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from scipy.special import betaincinv, ndtri

MIN_ETA, MAX_ETA = 1e-6, 3.0
"""The smallest and the largest width of a bin of log-likelihood that the privacy test accepts. With a smaller width,
bin numbers are no longer exact. With a larger width, a trace may be e^3 = 20 times as probable for one "plausible" user
as for another."""

MIN_ETA_IN_SINGLE_PRECISION = 1e-3
"""The smallest width for log-likelihoods in float32, whose rounding error is about as large."""

Number = int | float
TAIL = 0.025
"""Probability that the true value is beyond a given end of an interval."""
MAX_NEEDED = 10**6
TINY = 1e-3

EXPECTED_BY_CHANCE = 0.05
"""Number of people who count as exposed if nothing leaks, expected over all attacks of a light. By Markov's inequality,
somebody is then found with a probability of at most 5 %, and two people are found with one of at most 2.5 %."""

MIN_NOTICEABLE = 100
"""Minimum number of people of whom an attack could notice a leak, if "nobody is exposed" is to be good. If none of 100
people is found, at most 3 % of such people are exposed (rule of three)."""


class Status(Enum):
    """Status of a result, with a printed word and symbol, so that statuses differ not only by colour."""

    GOOD = ("Good", "✓")
    FAIR = ("Fair", "~")
    POOR = ("Poor", "✕")
    UNKNOWN = ("Not known", "?")
    NOT_APPLICABLE = ("Not applicable", "-")

    def __init__(self, word: str, symbol: str) -> None:
        self.word, self.symbol = word, symbol

    @property
    def css(self) -> str:
        """Its class in the style sheet."""
        return self.name.lower()


# Intervals of an estimate from a given number of people


def share_interval(share: Number, people: Number, tail: float = TAIL) -> tuple[float, float]:
    """Interval of a share of independent people; the true share is beyond each end with probability at most `tail`.

    Clopper and Pearson 1934: even if the share is 0 in a small sample, it may be above 0 among all people.
    """
    found = share * people
    # If hardly anything is found, the lower end is too small for a float.
    low = float(betaincinv(found, people - found + 1, tail)) if found > TINY else 0.0
    high = float(betaincinv(found + 1, people - found, 1 - tail)) if people - found > TINY else 1.0
    return low, high


def people_interval(found: Number, noticeable: Number, tail: float = TAIL) -> tuple[float, float]:
    """Interval of the number of exposed people, of `noticeable` people whose exposure would be found.

    At most one is found by chance, see `EXPECTED_BY_CHANCE`. If too few people could be found, anybody may be exposed.
    """
    return max(found - 1.0, 0.0), float(found) if noticeable >= MIN_NOTICEABLE else math.inf


def auc_interval(auc: Number, people: Number, tail: float = TAIL) -> tuple[float, float]:
    """Interval of an AUC from two sets of `people` people each, by the standard error of an AUC of 0.5."""
    return _around(auc, -float(ndtri(tail)) / math.sqrt(6 * people))


def advantage_interval(advantage: Number, people: Number, tail: float = TAIL) -> tuple[float, float]:
    """Interval of the greatest difference of two rates, by the tail of Smirnov's statistic, exp(-people d^2)."""
    return _around(advantage, math.sqrt(-math.log(tail) / people))


def difference_interval(difference: Number, people: Number, tail: float = TAIL) -> tuple[float, float]:
    """Interval of the difference of two mean shares of `people` people each, whose variance is at most a quarter."""
    by = -float(ndtri(tail)) / math.sqrt(2 * people)
    return difference - by, difference + by


def _around(value: Number, by: float) -> tuple[float, float]:
    return max(value - by, 0.0), min(value + by, 1.0)


def people_of_both(n: int, m: int) -> float:
    """Harmonic mean of `n` and `m`: two sets of this size are as informative as sets of `n` and `m` people."""
    return 2 * n * m / (n + m)


# Limits


@dataclass(frozen=True)
class Limit:
    """The largest results of an attack that count as good and as fair.

    The rule is the same for all limits. *Good* and *fair*: even the upper end of the 95 % interval is at most the
    respective limit. If the upper end is above the limit of fair, there are two cases. *Poor*: the lower end is above
    the result of a guess, so there is a leak, which may be large. *Not known*: the lower end is not above the result of
    a guess, so too few people were attacked. A larger leak or fewer people never give a better light.

    Examples
    --------
    >>> MEMBERSHIP_AUC.judge(0.53, people=1000).status.word, MEMBERSHIP_AUC.judge(0.7, people=8).status.word
    ('Good', 'Not known')
    """

    name: str  # short name for a table of limits
    sentence: str  # sentence about the result, with `{value}` for the result
    # `good`, `fair`: the largest upper ends of the interval.
    good: float
    fair: float
    reason: str  # why the limits have these values
    guess: float = 0.0  # the number that chance alone gives
    of_whom: str = "people"  # who are too few if the status is not known
    told_from_others: str = "training users"  # who are compared with others
    too_few: str = "There are too few {of_whom} to tell: {people}."  # said if the status is not known
    counts_people: bool = False  # whether results are numbers of people, not shares
    # Function of a result, its number of people and the probability of a tail that returns the ends of the interval.
    interval: Callable[..., tuple[float, float]] = field(default=share_interval, repr=False)

    def judge(
        self,
        value: Number,
        people: Number | tuple[int, int],
        interval: tuple[Number, Number] | None = None,
        guess: Number | None = None,
        *,
        n_attacks: int = 1,
        is_leak: bool = False,
    ) -> Judgement:
        """The light of a result.

        `value`: from 0 to 1, or a number of people, or NaN if it is not known. `people`: number of people from whom it
        was computed, not of traces, because traces of one person are not independent; two numbers if training users are
        told from others. `interval`: a 95 % interval from another method, such as a bootstrap; at each end, the wider
        interval counts. `guess`: the result of one, if it depends on the data. `n_attacks`: the result is one of so
        many, and the worst of them counts. By chance alone, some of them look like a leak, so the lower end leaves out
        a smaller tail (Bonferroni). `is_leak`: whether another number shows that there is a leak; it may be large, so
        the status is not "not known".
        """
        guess = self.guess if guess is None else guess
        n = (people_of_both(*people) if all(people) else 0) if isinstance(people, tuple) else people
        if not (math.isfinite(value) and n > 0):
            return Judgement(self, Status.UNKNOWN, value, 0.0, 1.0, guess, people)
        low, high = self.interval(value, n, TAIL / n_attacks)[0], self.interval(value, n)[1]
        if interval is not None:
            wider = float(ndtri(TAIL / n_attacks) / ndtri(TAIL))
            low, high = min(low, value - wider * (value - interval[0])), max(high, interval[1])
        if self.interval is not difference_interval:
            low = max(low, 0.0)
        status = self.status(low, high, -math.inf if is_leak else guess)
        needed = self._needed(value, n, low, high) if status is Status.UNKNOWN else None
        return Judgement(self, status, value, low, high, guess, people, needed)

    def alarm(self, people: Number, guess: Number | None = None) -> float:
        """The greatest result that is not poor with this number of people; `evaluate` gives an alarm above it."""
        low, high = 0.0, float(people) if self.counts_people else 1.0
        if self.judge(high, people, guess=guess).status is not Status.POOR:
            return math.inf
        while high - low > 1e-6:
            middle = (low + high) / 2
            is_poor = self.judge(middle, people, guess=guess).status is Status.POOR
            low, high = (low, middle) if is_poor else (middle, high)
        return low

    def shown(self, value: Number, form: str = ".1f") -> str:
        """A result as printed: a number of people, or percent in a given form."""
        return f"{value:,.0f}" if self.counts_people else f"{100 * value:{form}}\u00a0%"

    def status(self, low: Number, high: Number, guess: Number) -> Status:
        if high <= self.fair:
            return Status.GOOD if high <= self.good else Status.FAIR
        return Status.POOR if low > guess else Status.UNKNOWN

    def _needed(self, value: Number, people: Number, low: Number, high: Number) -> int | None:
        """Number of people needed for a known status, for this result and for that of a guess.

        An interval from another method may be wider, and then needs more people.
        """
        own_low, own_high = self.interval(value, people)
        wider, n = 1.0 if math.isinf(high) else ((high - low) / (own_high - own_low)) ** 2, float(people)
        while n * wider < MAX_NEEDED:
            n *= 1.05
            if all(
                self.status(*self.interval(each, n), self.guess) is not Status.UNKNOWN for each in (value, self.guess)
            ):
                step = 10 ** max(math.floor(math.log10(n * wider)) - 1, 0)
                return math.ceil(n * wider / step) * step
        return None


@dataclass(frozen=True)
class Judgement:
    """Judgement of a result by a limit."""

    limit: Limit
    status: Status
    value: Number
    # `low`, `high`: the ends of the 95 % interval of the value.
    low: Number
    high: Number
    guess: Number
    people: Number | tuple[int, int]
    # If the status is not known: about how many people would be needed. None if this cannot be estimated.
    needed: int | None = None

    @property
    def text(self) -> str:
        r"""The judgement in words.

        Examples
        --------
        >>> NAMED.judge(1.0, people=2, guess=0.5).text.replace("\xa0", " ")
        'The right person is named for 100.0 % of the traces (95 %: 15.8 to 100.0; a guess: 50). There are too few
        people to tell: 2. About 36 would be enough.'
        """
        if not math.isfinite(self.value):
            return f"{self.limit.name}: it could not be measured."
        ends = f"95\u00a0%: {100 * self.low:.1f} to {100 * self.high:.1f}; a guess: {100 * self.guess:.3g}"
        if self.limit.counts_people:
            ends = f"expected by chance: {EXPECTED_BY_CHANCE}"
        said = f"{self.limit.sentence.format(value=self.limit.shown(self.value))} ({ends})."
        if self.status is not Status.UNKNOWN:
            return said
        if isinstance(self.people, tuple):
            some, others = self.people
            there_are, each = f"{some:,} {self.limit.told_from_others} and {others:,} others", " of each"
        else:
            there_are, each = f"{self.people:,.0f}", ""
        would_do = "" if self.needed is None else f" About {self.needed:,}{each} would be enough."
        return f"{said} {self.limit.too_few.format(of_whom=self.limit.of_whom, people=there_are)}{would_do}"


def worst(judgements: Sequence[Judgement]) -> Judgement:
    """The worst judgement, in the order poor, not known, fair, good."""
    order = (Status.GOOD, Status.FAIR, Status.UNKNOWN, Status.POOR)

    def badness(each: Judgement) -> tuple[int, float]:
        return order.index(each.status), (each.high - each.limit.good) / (each.limit.fair - each.limit.good)

    return max(judgements, key=badness)


def rule(limits: Sequence[Limit]) -> str:
    """The rule for a light, in words."""
    listed = "; ".join(
        f"{each.name[:1].lower() + each.name[1:]} {each.shown(each.good, 'g')} and {each.shown(each.fair, 'g')}"
        for each in limits
    )
    return (
        "Good: the upper end of the 95\u00a0% interval is at most the first limit. Fair: it is at most the second "
        f"limit ({listed}). If the upper end is above both limits, the light is poor if the lower end is above a "
        "guess, or another number shows that there is a leak; otherwise there are too few people to tell, and the "
        "light is not known. The worst number of the strongest attack decides."
    )


EXPOSED = Limit(
    "People exposed",
    "People who are exposed beyond chance: {value}",
    0.0,
    1.0,
    "An average over all people hides a few who are exposed for certain. If nothing leaks, 0.05 people count as "
    "exposed. So an attacker who names one person is right in 19 of 20 cases, and chance names two people in at most "
    "one of 40 releases.",
    of_whom="people whose exposure would be noticed",
    counts_people=True,
    interval=people_interval,
)
"""Number of people whose score is above `bar_of_chance`."""

NAMED = Limit(
    "Right person named",
    "The right person is named for {value} of the traces",
    0.03,
    0.10,
    "The named person is wrong for 97 or 90 of 100 traces, so an attacker cannot rely on the name.",
)
"""Re-identification: share of the traces whose person is named correctly. A guess gives 1 / number of people."""

MEMBERSHIP_AUC = Limit(
    "Training user told from another",
    "Given a training user and another user, the attack picks the training user in {value} of cases",
    0.60,
    0.65,
    "A coin is right in 50 of 100 cases; an attacker who is right in 60 to 65 knows little about anybody.",
    guess=0.5,
    interval=auc_interval,
)


def shows_leak(
    auc: Number, people: Number | tuple[int, int], interval: tuple[Number, Number], n_attacks: int = 1
) -> bool:
    """Whether the area under the curve of an attack is surely above that of a guess; see `Limit.judge`."""
    return MEMBERSHIP_AUC.judge(auc, people, interval, n_attacks=n_attacks).low > MEMBERSHIP_AUC.guess


FOUND = Limit(
    "Found",
    "{value} of the people are found where at most 1\u00a0% of the others are named wrongly",
    0.04,
    0.06,
    "Four and six times a guess: with as many members as others, an accusation is right in 4 of 5 or in 6 of 7 cases. "
    "With 500 members and as many others, a release that leaks nothing is good in nine of ten cases.",
    guess=0.01,
)
"""Share of the people of whom an attacker can be sure, by any attack on identity or membership."""
FINDING_LIMITS = (FOUND, EXPOSED, NAMED)
ADVANTAGE = Limit(
    "Membership advantage",
    "The true positive rate is greater than the false one by {value}",
    0.14,
    0.21,
    "The advantages that correspond to areas under the curve of 0.60 and 0.65 for normally distributed scores.",
    interval=advantage_interval,
)
COPIED = Limit(
    "People copied",
    "People who find more of a trace of theirs in a synthetic trace than chance explains: at least {value}",
    0.0,
    1.0,
    "An average over all people hides a few whose traces are copied. Where nothing was copied, one person was counted "
    "in 0 to 6\u00a0% of the sets of days, depending on the data, and in up to 13\u00a0% of those of 28 days, because "
    "friends do the same; two people were counted in 1\u00a0% at most.",
    guess=EXPECTED_BY_CHANCE,
    too_few="It cannot be told whether more are copied: too few of {people} training users have traces so unusual that "
    "a copy would be noticed.",
    counts_people=True,
    interval=people_interval,
)
"""Number of people who find more of a trace of theirs than chance explains, see `attacks.copies`."""
INFERRED = Limit(
    "Inferred",
    "What is guessed is right for {value} more of the training users than of other people",
    0.10,
    0.15,
    "For 90 or 85 of 100 people, the synthetic traces tell no more than they would tell without these people's data.",
    interval=difference_interval,
)
"""Difference of two mean shares, from -1 to 1, of training users and of others."""
TRACKED = replace(
    INFERRED,
    name="Tracked",
    sentence="Hidden places are inferred right for {value} more of the known people than of strangers",
    reason="For 90 or 85 of 100 people, an attacker who knows traces of them infers no more than of strangers.",
    told_from_others="known people",
)
"""The same difference, of people whose traces an attacker knows and of strangers."""

SURE = Limit(
    "Sure of the input user",
    "If all users are equally probable beforehand, a person who sees one trace can be at most {value} sure from whom "
    "it was made",
    0.25,
    0.5,
    "One in four is at most a suspicion; above one in two, the input user is more probable than all others together.",
)

EPSILON = Limit(
    "Epsilon",
    "The differential privacy of each person with all their traces has epsilon {value}",
    1.0,
    10.0,
    "Ponomareva et al. 2023 (Journal of Artificial Intelligence Research 77) call an epsilon up to 1 strong, and one "
    "up to 10 reasonable.",
)


def sureness(k: int, eta: Number) -> float:
    """Greatest probability of a trace's input user, if k users are plausible within a factor e^eta.

    This holds for a person who knows the model, sees only this trace, and has a uniform prior over users. The input
    user is at most e^eta times as probable as each of the k - 1 others.
    """
    return 1 / (1 + (k - 1) * math.exp(-eta))


def grade(limit: Limit, value: Number) -> Status:
    """The light for a number that is known exactly."""
    return Status.GOOD if value <= limit.good else Status.FAIR if value <= limit.fair else Status.POOR
