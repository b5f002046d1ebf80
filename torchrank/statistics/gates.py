"""Gates: conditions on differences of systems, and their verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torchrank.names.parse import Named, parse_all
from torchrank.statistics.pair_statistics import PairStatistics

_CONDITION = re.compile(r"\s*(\S.*?)\s*([<>])\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Verdict:
    """The result of a gate for one pair of systems.

    ``state`` is "significant", "not significant" or "not tested", and ``remark`` says why a pair is not tested, or that
    judgments are missing.
    """

    gate: str
    a: str
    b: str
    difference: float | None
    p: float | None
    state: str
    passed: bool
    remark: str = ""

    def __str__(self) -> str:
        numbers = [] if self.difference is None else [f"difference {self.difference:+.4f}"]
        numbers += [] if self.p is None else [f"p = {self.p:.2g}"]
        shown = f" ({', '.join(numbers)})" * bool(numbers) + f"; {self.remark}" * bool(self.remark)
        return f"{self.gate} [{self.b} - {self.a}]: {self.state}{shown}"

    @property
    def judged(self) -> str:
        """The verdict in words, with its result first."""
        return f"{'passed' if self.passed else 'FAILED'}: {self}"


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of gates, as :meth:`torchrank.Comparison.gate` returns them: true if all have passed."""

    verdicts: tuple[Verdict, ...]

    def __bool__(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    def __repr__(self) -> str:
        return "\n".join(verdict.judged for verdict in self.verdicts)


@dataclass(frozen=True)
class Gate:
    """A condition on the difference of a measure, e.g. ``ndcg@10 < -0.005``.

    "fail-if" fails if the difference meets it significantly. "require" passes only then. So with few queries a gate of
    the first kind rarely fails, and one of the second kind mostly does. The test is Student's t test, or if the
    comparison has the test "anytime" the same for all looks together. If the difference is the same on all queries,
    and not 0, it is the sign test: p = 0.5 to the number of queries.
    """

    kind: str
    measure: str
    above: bool
    bound: float

    @classmethod
    def of(cls, text: str, kind: str) -> Gate:
        """Read a gate.

        Args:
            text: the condition.
            kind: "fail-if" or "require".

        Raises:
            ValueError: the text is not a condition.
        """
        if not (match := _CONDITION.fullmatch(text)):
            raise ValueError(f"Expected a condition such as 'ndcg@10 < -0.005' for {kind}, got {text!r}")
        return cls(kind, match[1], match[2] == ">", float(match[3]))

    def named(self, keys: Sequence[str], parameters: Mapping[str, Any] = MappingProxyType({})) -> Gate:
        """The gate with the name that its measure has among others.

        Args:
            keys: names of measures, such as those of a preset. A measure that has none of them has its label.
            parameters: those of all measures that have them, unless a name sets them.

        Raises:
            ValueError: the gate does not name one measure.
        """
        try:
            measure = Named(zip(keys, keys))[self.measure]
        except KeyError:
            measure, *others = (metric.label for metric in parse_all(self.measure, parameters))
            if others:
                message = f"Expected one measure in a condition for {self.kind}, got {self.measure!r}"
                raise ValueError(message) from None
        return replace(self, measure=measure)

    def verdicts(self, pairs: Sequence[PairStatistics], baseline: str, alpha: float, remark: str = "") -> list[Verdict]:
        """The verdict for each system except the baseline.

        Args:
            pairs: the pairs of a comparison.
            baseline: the system from which the others differ.
            alpha: the error rate.
            remark: what else is to be said.

        Raises:
            ValueError: the measure is not among the measures of the pairs.
        """
        measures = dict.fromkeys(pair.measure for pair in pairs)
        if self.measure not in measures:
            raise ValueError(
                f"Expected the measure of {self.kind} to be one of {', '.join(measures)}, got {self.measure!r};"
                " evaluate it, too"
            )
        return [
            self._of_pair(pair, alpha, remark) for pair in pairs if (pair.measure, pair.a) == (self.measure, baseline)
        ]

    def _of_pair(self, pair: PairStatistics, alpha: float, remark: str) -> Verdict:
        text = f"{self.kind} {self.measure} {'>' if self.above else '<'} {self.bound:g}"
        distance = pair.difference - self.bound
        spread = pair.standard_error > 0
        few = not (pair.n > 1 and pair.standard_error >= 0)  # no spread is known of one query or cluster
        if few or not (spread or abs(pair.difference) > 0):
            passed, difference = self.kind == "fail-if", None if math.isnan(pair.difference) else pair.difference
            why = "fewer than two queries that both have scored" if few else "equal on every query"
            remarks = "; ".join(filter(None, (why, remark)))
            return Verdict(text, pair.a, pair.b, difference, None, "not tested", passed, remarks)
        beyond = distance if self.above else -distance
        # A collapse to 0 on all queries has no spread, but must not pass.
        p = pair.p_above(beyond) if spread else pair.p_constant if beyond > 0 else 1.0
        met = p <= alpha
        state = "significant" if met else "not significant"
        return Verdict(text, pair.a, pair.b, pair.difference, p, state, met == (self.kind == "require"), remark)
