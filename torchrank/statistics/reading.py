"""How the numbers of a comparison are to be read: its notes, and warnings where they should not be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from torchrank.statistics.pair_statistics import PairStatistics
from torchrank.statistics.paired_tests import FAMILY_TESTS, OTHER_NULLS

#: A larger skewness of the differences, over the root of their number, distorts tests of means.
MOST_SKEW = 0.25
#: Fewer queries let a verdict rest on the shape of the distribution.
FEW_QUERIES = 20
#: What confidence sequences from sums promise, and what to use where they do not hold.
ANYTIME = "valid at all looks together, if queries come in random order; asymptotic"
BETTING = "torchrank.QueryTable.confidence_sequences holds for any number of queries"
#: Fewer clusters make their standard error too small.
FEW_CLUSTERS = 30


def notes_on(
    pairs: Sequence[PairStatistics],
    p_values: Sequence[float],
    test: str,
    correction: str,
    family: str,
    level: float,
    margin: float | Mapping[str, float] | None,
) -> list[str]:
    """Lines that explain the numbers of a comparison, and name pairs without a test or without a difference."""
    intervals = f"{100 * level:g} % {'confidence sequences' if test == 'anytime' else 't intervals'}"
    notes = [f"{test} test of b - a, {intervals}; {_family(pairs, p_values, test, correction, family)}"]
    notes += [ANYTIME] if test == "anytime" else []
    notes += [OTHER_NULLS[test]] if test in OTHER_NULLS else []
    if margin is not None:
        each = margin.items() if isinstance(margin, Mapping) else [("", margin)]
        size = ", ".join(f"{value:g} {label}".strip() for label, value in each)
        notes.append(f"margin {size}: equivalent if |b - a| is shown to be less, not_worse if b loses less")
    if lower := dict.fromkeys(pair.measure for pair in pairs if not pair.higher_is_better):
        notes.append(f"lower is better: {', '.join(lower)}")
    apart = [pair.unpaired for pair in pairs]
    if any(apart):
        notes.append(f"up to {max(apart)} queries were scored by one system only; a pair does not count them")
    return [
        *notes,
        *_named(pairs, "identical on every query, p = 1", lambda pair: pair.n > 1 and pair.identical),
        *_named(
            pairs, "fewer than two queries or clusters that both have scored, no verdict", lambda pair: pair.df == 0
        ),
        *_named(
            pairs,
            "the same difference everywhere: no spread, so no interval and no t test",
            lambda pair: pair.df > 0 and not pair.identical and not pair.standard_error > 0,
        ),
    ]


def warnings_on(pairs: Sequence[PairStatistics], test: str) -> list[str]:
    """Lines on the pairs whose numbers should not be trusted."""
    of_means = test not in OTHER_NULLS
    return [
        *_named(
            pairs,
            "a few queries make up most of the difference, so tests and intervals of means are unreliable: add queries,"
            " or look at these",
            lambda pair: of_means and pair.n >= FEW_QUERIES and abs(pair.skewness) / math.sqrt(pair.n) > MOST_SKEW,
        ),
        *_named(
            pairs,
            f"few queries: a verdict on less than {FEW_QUERIES} depends on the shape of their distribution"
            + f"; {BETTING}" * (test == "anytime"),
            lambda pair: 1 < pair.n < FEW_QUERIES and not math.isnan(pair.sd),  # of several runs it is not known
        ),
        *_named(
            pairs,
            "a few queries have most of the weight: the effective number of queries is less than half of their number",
            lambda pair: pair.effective < pair.n / 2,
        ),
        *_named(
            pairs,
            "means and wins point in opposite directions: no winner is named",
            lambda pair: not of_means and pair.gain * (pair.wins - pair.losses) < 0,
        ),
    ]


def _family(pairs: Sequence[PairStatistics], p_values: Sequence[float], test: str, correction: str, family: str) -> str:
    measures = dict.fromkeys(pair.measure for pair in pairs)
    count = len(dict.fromkeys((pair.a, pair.b) for pair in pairs))
    over = f"{count} pair{'s' * (count != 1)}"
    if test in FAMILY_TESTS:
        return f"p-values are valid over all pairs together{', for each measure' * (len(measures) > 1)}"
    if correction == "none":
        return "p-values are not corrected"
    if len(measures) > 1:
        over += f" x {len(measures)} measures" if family == "all" else ", for each measure"
    if count == 1 and len(measures) > 1 and family == "measure":
        return (
            "p-values are not corrected, since each measure has one pair; family='all' (--family all) corrects over the"
            " measures"
        )
    untested = sum(map(math.isnan, p_values))
    return f"{correction} over {over}" + f" ({untested} without a test not counted)" * bool(untested)


def _named(pairs: Sequence[PairStatistics], text: str, holds: Callable[[PairStatistics], bool]) -> list[str]:
    """The text with up to three of the pairs that it concerns; nothing if it concerns none."""
    named = [f"{pair.measure}: {pair.a}, {pair.b}" for pair in pairs if holds(pair)]
    more = f"; {len(named) - 3} more" if len(named) > 3 else ""
    return [f"{text} ({'; '.join(named[:3])}{more})"] if named else []
