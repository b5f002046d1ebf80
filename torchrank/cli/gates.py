"""The gates of ``torchrank compare``: conditions on differences of runs, and their verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchrank.names.parse import Named, parse
from torchrank.statistics.comparison import Comparison
from torchrank.statistics.pair_statistics import PairStatistics


@dataclass(frozen=True)
class Verdict:
    """The result of a gate for one pair of runs."""

    gate: str
    a: str
    b: str
    difference: float | None
    p: float | None
    state: str
    passed: bool

    def __str__(self) -> str:
        p = "-" if self.p is None else f"{self.p:.2g}"
        difference = "-" if self.difference is None else f"{self.difference:+.4f}"
        return f"{self.gate} [{self.b} - {self.a}]: {self.state}, difference {difference}, p {p}"

    @property
    def judged(self) -> str:
        """The verdict in words, with its result first."""
        return f"{'passed' if self.passed else 'FAILED'}: {self}"


@dataclass(frozen=True)
class Gate:
    """A condition on the difference of a measure, e.g. ``ndcg@10 < -0.005``.

    "fail-if" fails if the difference meets it significantly. "require" passes only then. So a gate of the first kind
    is silent if there are few queries, and one of the second kind fails. The test is Student's t test, or if the
    comparison has the test "anytime" the same for all looks together. If the difference is the same on all queries,
    and not 0, it is the sign test: p = 0.5 to the number of queries.
    """

    kind: str
    measure: str
    above: bool
    bound: float

    @classmethod
    def of(cls, text: str, kind: str, keys: Sequence[str] = ()) -> Gate:
        """Read a gate. Measures have their labels as names, or one of ``keys``, such as the names of a preset.

        Raises:
            ValueError: the text is not a condition.
        """
        match = re.fullmatch(r"\s*(\S.*?)\s*([<>])\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", text)
        if not match:
            raise ValueError(f"Expected a condition such as 'ndcg@10 < -0.005' for --{kind}, got {text!r}")
        try:
            measure = Named(zip(keys, keys))[match[1]]
        except KeyError:
            measure = parse(match[1]).label
        return cls(kind, measure, match[2] == ">", float(match[3]))

    def verdicts(self, comparison: Comparison, baseline: str, alpha: float) -> list[Verdict]:
        """The verdict for each run except the baseline.

        Raises:
            ValueError: the measure is not among the measures of the comparison.
        """
        if self.measure not in comparison.measures:
            raise ValueError(
                f"Expected the measure of --{self.kind} to be one of {', '.join(comparison.measures)}, got"
                f" {self.measure!r}; add it to -m"
            )
        pairs = [row.pair for row in comparison.rows if row.pair.measure == self.measure]
        return [self._of_pair(pair, alpha) for pair in pairs if pair.a == (comparison.baseline or baseline)]

    def _of_pair(self, pair: PairStatistics, alpha: float) -> Verdict:
        text = f"--{self.kind} {self.measure} {'>' if self.above else '<'} {self.bound:g}"
        distance = pair.difference - self.bound
        spread = pair.standard_error > 0
        if pair.n < 2 or not (spread or abs(pair.difference) > 0):
            passed, difference = self.kind == "fail-if", None if math.isnan(pair.difference) else pair.difference
            return Verdict(text, pair.a, pair.b, difference, None, "undecided", passed)
        beyond = distance if self.above else -distance
        # A collapse to 0 on all queries has no spread, but must not pass.
        p = pair.p_above(beyond) if spread else pair.p_constant if beyond > 0 else 1.0
        met = p <= alpha
        state = "met" if met else "not shown"
        return Verdict(text, pair.a, pair.b, pair.difference, p, state, met == (self.kind == "require"))
