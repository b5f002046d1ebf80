"""Evaluations that are looked at again and again, simulated. ``python -m tests.support.looks`` prints the figures."""

import math
import sys

import numpy as np

from torchrank.statistics.intervals import BETS, anytime_level, queries_needed, t_quantile

LEVEL, LOOKS = 0.95, 100


def _ranks(draw, shape):
    return 1 / draw.integers(1, 11, shape)


#: differences of two equally good systems per query, with mean 0
DIFFERENCES = {
    "normal": lambda draw, shape: draw.normal(size=shape),
    "reciprocal ranks": lambda draw, shape: _ranks(draw, shape) - _ranks(draw, shape),
    "hits, 95 % equal": lambda draw, shape: (draw.random(shape) < 0.05) * (2.0 * (draw.random(shape) < 0.5) - 1),
    "exponential": lambda draw, shape: draw.exponential(size=shape) - 1,
}


def t_of_looks(differences, looks=LOOKS):
    """The number of queries [looks], and the t statistics [run, look] of their means."""
    n = np.arange(1, looks + 1) * (differences.shape[1] // looks)
    mean, squares = (np.cumsum(x, axis=1)[:, n - 1] / n for x in (differences, differences**2))
    error = np.sqrt(np.maximum(0, squares - mean**2) / (n - 1))
    spread = error * np.sqrt(n) > 1e-9  # values that are all equal have no interval
    return n, np.where(spread, mean / np.where(spread, error, 1), 0)


def reaches(numbers, anytime):
    """How many standard errors an interval reaches at each look."""
    levels = [anytime_level(LEVEL, n) if anytime else LEVEL for n in numbers.tolist()]
    return np.array([t_quantile((1 + level) / 2, n - 1) for level, n in zip(levels, numbers.tolist())])


def alarms(differences):
    """The shares of runs in which the t test, and the anytime test, finds a difference at one of the looks."""
    n, t = t_of_looks(differences)
    return [(np.abs(t) > reaches(n, anytime)).any(axis=1).mean() for anytime in (False, True)]


def verdicts(effect, runs=400, queries=5000, seed=0):
    """The share of runs with the right verdict, with a wrong one, and the mean number of queries until the end."""
    draw = np.random.default_rng(seed)
    n, t = t_of_looks(draw.normal(effect, 1, (runs, queries)))
    beyond = np.abs(t) > reaches(n, True)
    decided, first = beyond.any(axis=1), beyond.argmax(axis=1)
    sign = t[np.arange(runs), first] > 0
    return (decided & sign).mean(), (decided & ~sign).mean(), np.where(decided, n[first], queries).mean()


def lost_bets(values, mean):
    """The share of runs, of values [run, query] in [0, 1], whose betting sequence leaves out the mean at some query."""
    wealth = np.zeros((2, len(values), len(BETS)))
    most = np.full(len(values), -math.inf)
    for x in values.T:
        wealth += np.log1p(BETS * (np.stack([x / mean, (1 - x) / (1 - mean)])[..., None] - 1))
        most = np.maximum(most, np.logaddexp.reduce(wealth, axis=-1).max(axis=0))
    return (most >= math.log(2 * len(BETS) / (1 - LEVEL))).mean()


def rare(draw, shape):
    """Differences with mean 0, of which 2 % are large, and all others lose a little."""
    return np.where(draw.random(shape) < 0.02, 0.49, draw.uniform(-0.02, 0, shape))


def figures():
    """The lines of the page."""
    draw = np.random.default_rng(0)
    yield f"equal systems, {LOOKS} looks after 20 queries each: share of 2,000 runs with a verdict; in the others all"
    yield "  intervals contain the true difference"
    for name, of in DIFFERENCES.items():
        t_test, anytime = alarms(of(draw, (2000, 20 * LOOKS)))
        yield f"  {name:17}t test {t_test:.1%}, anytime {anytime:.1%}"
    yield "one system better by an effect (in sd of the differences), a look after 50 queries each, 5,000 at most"
    for effect in (0.1, 0.2, 0.5):
        right, wrong, queries = verdicts(effect)
        planned, saved = queries_needed(effect, 1.0), 1 - queries / 5000
        yield (
            f"  {effect:<17}right {right:.0%}, wrong {wrong:.0%}, {queries:,.0f} queries, {saved:.0%} saved"
            f" (a t test that knows the effect: {planned})"
        )
    yield "betting sequences, a look after each of 500 queries: share of 1,000 runs that leave out the mean"
    for mean in (0.02, 0.5):
        yield f"  {f'hits, mean {mean}':17}{lost_bets((draw.random((1000, 500)) < mean).astype(float), mean):.1%}"
    differences = rare(draw, (1000, 500))
    lost = lost_bets((1 + differences) / 2, 0.5)
    yield f"  {'rare large ones':17}{lost:.1%} (sequences from sums: {alarms(differences)[1]:.1%})"


if __name__ == "__main__":
    sys.stdout.write("\n".join([*figures(), ""]))
