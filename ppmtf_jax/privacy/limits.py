"""All thresholds by which the library calls something safe enough or too risky.

Statements, lights, alarms and refusals read them here, so that they cannot disagree. A number of an attack is an
estimate from a limited number of people. It is judged with its 95 % interval, as a cautious data protection officer
would judge it: a leak that is not shown to be small is not good. See `Limit` for the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from scipy.special import betaincinv

MIN_ETA, MAX_ETA = 1e-6, 3.0
"""The smallest and the largest width of a bin of log-likelihood that the privacy test accepts. Below, numbers of bins
are no longer exact. Above, a trace may be e^3 = 20 times as probable for one "plausible" user as for another."""

MIN_ETA_IN_SINGLE_PRECISION = 1e-3
"""The smallest width for likelihoods in float32, which are rounded by about as much."""

MIN_USERS_PER_PLACE = 2
"""Each visited place of a release needs at least so many training users. A place with only one user tells about her."""

Number = int | float
TAIL = 0.025
"""Probability at which either end of an interval is wrong."""
MOST_NEEDED = 10**6
TINY = 1e-3


class Status(Enum):
    """How good something is, with a printed word and symbol, so that no colour is needed to tell the statuses apart."""

    GOOD = ("Good", "✓")
    FAIR = ("Fair", "~")
    POOR = ("Poor", "✕")
    UNKNOWN = ("Not known", "?")

    def __init__(self, word: str, symbol: str) -> None:
        self.word, self.symbol = word, symbol

    @property
    def css(self) -> str:
        """Class of the style sheet."""
        return self.name.lower()


# Intervals of an estimate from so many people


def share_interval(share: Number, people: Number, tail: float = TAIL) -> tuple[float, float]:
    """Interval of a share of independent people; each end is wrong with a probability of at most `tail`.

    Clopper and Pearson 1934: the share may be 0 of a few people, and still not 0 of all people.
    """
    found = share * people
    # If hardly anything is found, the lower end is too small for a float.
    low = float(betaincinv(found, people - found + 1, tail)) if found > TINY else 0.0
    high = float(betaincinv(found + 1, people - found, 1 - tail)) if people - found > TINY else 1.0
    return low, high


def auc_interval(auc: Number, people: Number) -> tuple[float, float]:
    """Interval of an area under the curve from two sets of so many people each, by its standard error for a guess."""
    return _around(auc, 1.96 / math.sqrt(6 * people))


def advantage_interval(advantage: Number, people: Number) -> tuple[float, float]:
    """Interval of the greatest difference of two rates, by the tail of Smirnov's statistic, exp(-people d^2)."""
    return _around(advantage, math.sqrt(-math.log(TAIL) / people))


def _around(value: Number, by: float) -> tuple[float, float]:
    return max(value - by, 0.0), min(value + by, 1.0)


def people_of_both(n: int, m: int) -> float:
    """The harmonic mean: two sets of so many people each say as much as one set of `n` and one of `m` people."""
    return 2 * n * m / (n + m)


# Limits


@dataclass(frozen=True)
class Limit:
    """How large a number of an attack may be to be good, and how large to be fair.

    The rule is the same for all limits. *Good* and *fair*: even the upper end of the 95 % interval is at most the
    limit. If the upper end is above the limit of fair, there are two cases. *Poor*: the lower end is above a guess, so
    something leaks, and it may be much. *Not known*: the lower end is not above a guess, so too few people were
    attacked. Neither a larger leak nor fewer people ever give a better light.

    Examples
    --------
    >>> MEMBERSHIP_AUC.judge(0.53, people=1000).status.word, MEMBERSHIP_AUC.judge(0.7, people=8).status.word
    ('Good', 'Not known')
    """

    name: str  # a short name, as in a table of limits
    sentence: str  # what the number says, with `{value}` in its place
    # `good`, `fair`: the largest upper ends of the interval.
    good: float
    fair: float
    reason: str  # why the limits have these values
    guess: float = 0.0  # the number that chance alone gives
    of_whom: str = "people"  # the people of whom more are needed if the status is not known
    # Gives the ends of the 95 % interval from a number and the number of people behind it.
    interval: Callable[[Number, Number], tuple[float, float]] = field(default=share_interval, repr=False)

    def judge(
        self,
        value: Number,
        people: Number,
        interval: tuple[Number, Number] | None = None,
        guess: Number | None = None,
    ) -> Judgement:
        """Which light a number gets.

        `value`: from 0 to 1, or NaN if it is not known. `people`: number of people behind it. Count people, because
        traces of one person are not independent. `interval`: a 95 % interval from another method, such as a bootstrap.
        At each end the wider of both counts. `guess`: the number that chance alone gives, if it depends on the data.
        """
        guess = self.guess if guess is None else guess
        if not (math.isfinite(value) and people > 0):
            return Judgement(self, Status.UNKNOWN, value, 0.0, 1.0, guess, None)
        low, high = self.interval(value, people)
        if interval is not None:
            low, high = min(low, interval[0]), max(high, interval[1])
        status = self._status(low, high, guess)
        needed = self._needed(value, people, low, high) if status is Status.UNKNOWN else None
        return Judgement(self, status, value, low, high, guess, needed)

    def alarm(self, people: Number, guess: Number | None = None) -> float:
        """The greatest number that is not poor with so many people; `evaluate` gives an alarm above it."""
        low, high = 0.0, 1.0
        if self.judge(high, people, guess=guess).status is not Status.POOR:
            return math.inf
        while high - low > 1e-6:
            middle = (low + high) / 2
            is_poor = self.judge(middle, people, guess=guess).status is Status.POOR
            low, high = (low, middle) if is_poor else (middle, high)
        return low

    def _status(self, low: Number, high: Number, guess: Number) -> Status:
        if high <= self.fair:
            return Status.GOOD if high <= self.good else Status.FAIR
        return Status.POOR if low > guess else Status.UNKNOWN

    def _needed(self, value: Number, people: Number, low: Number, high: Number) -> int | None:
        """How many people are needed to know the status, both with this number and with a guess.

        An interval from another method may be wider, and then needs more people.
        """
        own_low, own_high = self.interval(value, people)
        wider, n = ((high - low) / (own_high - own_low)) ** 2, float(people)
        while n * wider < MOST_NEEDED:
            n *= 1.05
            if all(
                self._status(*self.interval(each, n), self.guess) is not Status.UNKNOWN for each in (value, self.guess)
            ):
                step = 10 ** max(math.floor(math.log10(n * wider)) - 1, 0)
                return math.ceil(n * wider / step) * step
        return None


@dataclass(frozen=True)
class Judgement:
    """What a limit says about a number."""

    limit: Limit
    status: Status
    value: Number
    # `low`, `high`: the ends of the 95 % interval of the value.
    low: Number
    high: Number
    guess: Number
    # If the status is not known: about how many people would be needed. None if this cannot be estimated.
    needed: int | None = None

    @property
    def text(self) -> str:
        r"""The judgement in words.

        Examples
        --------
        >>> NAMED.judge(1.0, people=2, guess=0.5).text.replace("\xa0", " ")
        'The right person is named for 100.0 % of the traces (95 %: 15.8 to 100.0; a guess: 50). There are too few
        people to tell; about 36 people would be enough.'
        """
        if not math.isfinite(self.value):
            return f"{self.limit.name}: it could not be measured."
        ends = f"95\u00a0%: {100 * self.low:.1f} to {100 * self.high:.1f}; a guess: {100 * self.guess:.3g}"
        value = f"{100 * self.value:.1f}\u00a0%"
        said = f"{self.limit.sentence.format(value=value)} ({ends})."
        if self.status is not Status.UNKNOWN:
            return said
        would_do = "" if self.needed is None else f"; about {self.needed:,} {self.limit.of_whom} would be enough"
        return f"{said} There are too few people to tell{would_do}."


def worst(judgements: Sequence[Judgement]) -> Judgement:
    """The judgement that decides: the worst one, in the order poor, not known, fair, good."""
    order = (Status.GOOD, Status.FAIR, Status.UNKNOWN, Status.POOR)

    def badness(each: Judgement) -> tuple[int, float]:
        return order.index(each.status), (each.high - each.limit.good) / (each.limit.fair - each.limit.good)

    return max(judgements, key=badness)


def rule(limits: Sequence[Limit]) -> str:
    """The rule for a light, in words."""
    listed = "; ".join(
        f"{each.name[:1].lower() + each.name[1:]} {100 * each.good:g}\u00a0% and {100 * each.fair:g}\u00a0%"
        for each in limits
    )
    return (
        "Good and fair: even the upper end of the 95\u00a0% interval is at most the first and the second limit "
        f"({listed}). If it is above both, the light is poor if the lower end is above a guess. If it is not, there "
        "are too few people to tell, and the light is not known. The worst number of the strongest attack decides."
    )


NAMED = Limit(
    "Right person named",
    "The right person is named for {value} of the traces",
    0.03,
    0.10,
    "The named person is wrong for 97 and for 90 of 100 traces, so nobody can rely on it.",
)
"""Re-identification: share of the traces whose person is named rightly. A guess gives 1 / number of people."""

LINKED = Limit(
    "Linked with 1 % false alarms",
    "{value} of the people's traces are linked to them with 1\u00a0% false alarms",
    0.05,
    0.10,
    "Five and ten times a guess: if an own trace is as probable as another one, a link is right in 5 of 6, and in 10 "
    "of 11 cases.",
    guess=0.01,
)
LINKED_SURELY = Limit(
    "Linked with 0.1 % false alarms",
    "{value} of the people's traces are linked to them with 0.1\u00a0% false alarms",
    0.02,
    0.05,
    "Nearly certain links, of one in fifty and of one in twenty people.",
    guess=0.001,
)
IDENTITY_LIMITS = (NAMED, LINKED, LINKED_SURELY)

MEMBERS = "training users, and as many others,"
MEMBERSHIP_AUC = Limit(
    "Training user told from another",
    "Given a training user and another user, the attack picks the training user in {value} of cases",
    0.60,
    0.65,
    "A coin is right in 50 of 100 cases; an attacker who is right in 60 to 65 knows little about anybody.",
    guess=0.5,
    of_whom=MEMBERS,
    interval=auc_interval,
)
FOUND = Limit(
    "Found with 1 % false alarms",
    "{value} of the training users are found with 1\u00a0% false alarms",
    0.05,
    0.10,
    "Five and ten times a guess: with as many members as others, an accusation is right in 5 of 6, and in 10 of 11 "
    "cases. An average over all users hides the few who are exposed; this number does not.",
    guess=0.01,
    of_whom=MEMBERS,
)
FOUND_SURELY = Limit(
    "Found with 0.1 % false alarms",
    "{value} of the training users are found with 0.1\u00a0% false alarms",
    0.02,
    0.05,
    "Nearly certain accusations, of one in fifty and of one in twenty people.",
    guess=0.001,
    of_whom=MEMBERS,
)
MEMBERSHIP_LIMITS = (MEMBERSHIP_AUC, FOUND, FOUND_SURELY)
ADVANTAGE = Limit(
    "Membership advantage",
    "The true positive rate is greater than the false one by {value}",
    0.14,
    0.21,
    "The values for areas under the curve of 0.60 and 0.65, if scores are normal.",
    of_whom=MEMBERS,
    interval=advantage_interval,
)
COPIED = Limit(
    "Copied",
    "{value} of the traces share more with a training trace than 95\u00a0% of other people's traces do",
    0.10,
    0.15,
    "Two and three times the share for traces of people whose data was not used.",
    guess=0.05,
)
SURE = Limit(
    "Sure of the input user",
    "If all users are equally probable beforehand, a person who sees one trace can be at most {value} sure from whom "
    "it was made",
    0.25,
    0.5,
    "One in four is at most a suspicion; above one in two, the input user is more probable than all others together.",
)


def sureness(k: int, eta: Number) -> float:
    """How sure somebody can be of a trace's input user, if k users are plausible within a factor e^eta.

    This holds for a person who knows the model, sees this trace alone, and held all users equally probable beforehand.
    The input user is at most e^eta times as probable as each of the k - 1 others.
    """
    return 1 / (1 + (k - 1) * math.exp(-eta))


def grade(limit: Limit, value: Number) -> Status:
    """The light for a number that is known exactly."""
    return Status.GOOD if value <= limit.good else Status.FAIR if value <= limit.fair else Status.POOR
