"""Expected gains of models of users: rank-biased precision, and the C/W/L framework that generalises it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import UNDISCOUNTED, AtLeast, Geometric, Scaled
from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.metrics.base import RankingMetric, RetrievedMetric
from torchrank.names.parameters import flag, integer, number, one_of
from torchrank.ranking.intervals import only, ratio
from torchrank.ranking.ranking import Ranking
from torchrank.state.metric import Measure

__all__ = ["CWL", "RBP", "RBPResidual"]

# The last rank that users of C/W/L see by default, as in cwl_eval.
DEEPEST = 1000

# The largest `top_k` of C/W/L. Memory grows with it, because users can go on behind the end of a list.
SEEN = 2**18

#: users of C/W/L whose attention does not depend on gains
BLIND_USERS = ("precision", "rbp", "sdcg", "insq")

# Tolerance for comparing sums of gains, which are rounded.
ROUNDING = 1e-9


class BoundedGain(Measure):
    """Base of measures whose gains are from 0 to 1, binary or graded.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: grades at or above it gain 1, other grades 0; > 0.
        max_grade: gains are graded, grade / max_grade and at most 1; > 0. None = binary gains.

    Raises:
        ValueError: ``relevance_level`` or ``max_grade`` is not a number > 0, or both are passed.
    """

    relevance_level: float = number(default=1, above=0)
    max_grade: float | None = number(default=None, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_grade is not None and self.relevance_level != 1:
            raise ValueError(
                "Expected either relevance_level or max_grade, got"
                f" relevance_level={self.relevance_level} and max_grade={self.max_grade}"
            )

    @property
    def gain_function(self) -> Callable[[Tensor], Tensor]:
        """The function from grades to gains."""
        return AtLeast(self.relevance_level) if self.max_grade is None else Scaled(self.max_grade)


class UserMetric(BoundedGain, RankingMetric):
    """Base of the measures of user models, whose gains are from 0 to 1, binary or graded."""

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.ideal(self.gain_function, UNDISCOUNTED, 1) == 0


class RBP(UserMetric):
    r"""Rank-biased precision: :math:`(1 - p) \sum_{i \le k} gain_i \, p^{i - 1}`.

    The expected gain per candidate of a user who goes on to the next candidate with probability p. Gains are binary, or
    with ``max_grade`` graded, :math:`grade / max\_grade` and at most 1.

    Source:
        Moffat and Zobel, Rank-biased precision for measurement of retrieval effectiveness, ACM TOIS 27(1), 2008.

    Args:
        p: probability to go on, > 0 and < 1.
        normalize: divide by the RBP of the best order of all judged candidates, cut at k, like LensKit's argument of
            the same name.

    Raises:
        ValueError: ``p`` is not between 0 and 1, ``normalize`` is not a bool, ``relevance_level`` or ``max_grade``
            is not a number > 0, or both are passed.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RBP(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # (1 + 1/4) / 2
        tensor([0.6250], dtype=torch.float64)
    """

    name = "rbp"

    p: float = number(default=0.9, above=0, below=1)
    normalize: bool = flag(default=False)

    def numerator(self, ranking: Ranking) -> Tensor:
        gained = ranking.discounted_gain(self.gain_function, Geometric(self.p), self.top_k)
        return gained if self.normalize else (1 - self.p) * gained

    def denominator(self, ranking: Ranking) -> Tensor | None:
        return ranking.ideal(self.gain_function, Geometric(self.p), self.top_k) if self.normalize else None


class RBPResidual(RetrievedMetric):
    r"""Residual of rank-biased precision: :math:`p^n + (1 - p) \sum_{i \le n, unjudged} p^{i - 1}`.

    The increase of :class:`RBP` if all unjudged candidates in a list of n, and all candidates behind it, were relevant.
    It is 1 minus the weight of the judged candidates. With ``top_k``, n is at most ``top_k``. Candidates that a layout
    does not name are unjudged. Lower is better, because less is unknown. A query for which nothing was retrieved has
    no value. trec_eval omits the first term if all candidates of the list are judged.

    Source:
        Moffat and Zobel, Rank-biased precision for measurement of retrieval effectiveness, ACM TOIS 27(1), 2008.

    Args:
        p: probability to go on, > 0 and < 1.

    Raises:
        ValueError: ``p`` is not between 0 and 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RBPResidual(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, -1, 0]]))  # 1/8 + 1/4
        tensor([0.3750], dtype=torch.float64)
    """

    name = "rbpresidual"
    higher_is_better = False
    takes_unjudged_for = ("irrelevant",)

    p: float = number(default=0.9, above=0, below=1)

    def need(self) -> Need:
        return Need(self.top_k)

    def measure(self, ranking: Ranking) -> Tensor:
        # The discounts of all ranks add up to 1 / (1 - p), also behind the list. All but the judged weight is residual.
        weight = only(ranking.judged(), ranking.mean_discount(Geometric(self.p), self.top_k)).sum(-1)
        return (1 - (1 - self.p) * weight).clamp_min(0)


class UserModel(Measure):
    """A user of the C/W/L framework, who reads a list from rank to rank; see :class:`CWL` for the parameters."""

    top_k: int | None = integer(default=None, least=1, most=SEEN, kw_only=False)
    user: str | Callable[[Tensor, Tensor], Tensor] = one_of(default="rbp", among=lambda _: USERS)
    p: float = number(default=0.8, above=0, below=1)
    target: float = number(default=1, above=0)
    benefit: float = number(default=0)
    cost: float = number(default=0)
    middle: float = number(default=0.5)

    @property
    def ranks(self) -> int:
        """The last rank that a user can see."""
        # With a cost, gains can extend the patience of "bpm" beyond `top_k`.
        patience_grows = self.user == "bpm" and self.cost != 0
        return max(self.top_k or DEEPEST, DEEPEST) if patience_grows else self.top_k or DEEPEST

    def seen(self, gain: Tensor) -> Tensor:
        """Probability to see each rank: float64 [query, rank].

        Args:
            gain: float64 [query, rank], from 0 to 1, at the ranks 1 to :attr:`ranks`.
        """
        go_on = self.user if callable(self.user) else functools.partial(USERS[self.user], self)
        ranks = torch.arange(1, self.ranks + 1, dtype=gain.dtype, device=gain.device)
        # A user sees rank i who went on from all ranks j < i.
        seen = go_on(gain, ranks).clamp(0, 1).expand_as(gain)[:, :-1].cumprod(-1)
        return torch.nn.functional.pad(seen, (1, 0), value=1.0)


class CWL(UserModel, UserMetric):
    r"""Expected gain of a user per candidate in the C/W/L framework: :math:`\sum_i W_i \, gain_i`.

    A user who sees rank i goes on to the next rank with probability :math:`C_i`. The share of attention at rank i is
    :math:`W_i = V_i \,/\, \sum_{i \le n} V_i`, where :math:`V_i = \prod_{j < i} C_j` is the probability to see rank i.
    There are n = ``top_k`` ranks, 1000 by default; a shorter list is continued with gains of 0. ``of`` is the number to
    report:

    - "utility": the expected utility (EU) per candidate, :math:`\sum_i W_i \, gain_i`.
    - "total_utility": the expected total utility (ETU), :math:`\sum_i V_i \, gain_i`.
    - "depth": the expected depth (ED), which is the number of candidates seen, :math:`\sum_i V_i`. No query is empty.

    If every candidate costs 1, the expected total cost (ETC) is the depth, and the expected cost (EC) is 1. For costs
    of items see :class:`CWLCost`.

    In the table, T is ``target``, and G the sum of the gains at the ranks 1 to i. S is the sum of gain - ``middle``
    over the ranks 1 to i - 1.

    ======================  ============================================================================================
    ``user``                :math:`C_i`
    ======================  ============================================================================================
    "precision"             1
    "rbp"                   p (Moffat and Zobel, TOIS 2008)
    "rr"                    1 while G is 0, then 0
    "ap"                    :math:`\sum_{j>i} (gain_j / j) \,/\, \sum_{j \ge i} (gain_j / j)`
    "sdcg"                  log(i + 1) / log(i + 2), the scaled DCG
    "insq"                  :math:`((i + 2T - 1) / (i + 2T))^2` (Moffat, Scholer and Thomas, ADCS 2012)
    "inst"                  the same with 2T - G in place of 2T (Moffat, Bailey, Scholer and Thomas, ADCS 2015)
    "bpm"                   1 while G < T and i < ``top_k``, then 0 (Zhang et al., SIGIR 2017). With ``benefit`` and
                            ``cost``, T grows by ``benefit`` S, and ``top_k`` by ``cost`` S
    "nerr8"                 1 - gain (this and the following: Azzopardi, Mackenzie and Moffat, ICTIR 2021)
    "nerr9"                 (1 - gain) i / (i + 1)
    "nerr10"                (1 - gain) p
    "nerr11"                (1 - gain) times the :math:`C_i` of "insq"
    ======================  ============================================================================================

    Parameters that do not occur in the row of a user have no effect. Under ``ties="expected"`` every tied candidate
    gains the mean of its tie group. This is the exact mean over all orders if :math:`C_i` does not depend on gains
    ("precision", "rbp", "sdcg", "insq"). For the other users it is the value for a list of mean gains.

    Source:
        Moffat, Bailey, Scholer and Thomas, Incorporating user expectations and behavior into the measurement of search
        effectiveness, ACM TOIS 35(3), 2017; Azzopardi, Thomas and Moffat, cwl_eval, SIGIR 2019.

    Args:
        top_k: number of ranks that a user can see, at most 262,144; None = 1000.
        of: the number to report: "utility", "total_utility" or "depth".
        user: a name from the table, or a callable with a name, from gains float64 [query, rank] and ranks float64
            [rank] to probabilities to go on.
        p: probability to go on for "rbp" and "nerr10", > 0 and < 1.
        target: the total gain that is the aim of "insq", "inst", "bpm" and "nerr11", > 0.
        benefit, cost, middle: the effect of gains on the target and the patience of "bpm"; see the table.

    Raises:
        ValueError: ``user`` or ``of`` is unknown, ``top_k`` or a parameter is outside its range, or ``unjudged`` asks
            for bounds of a total or depth whose user is guided by gains.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, grades = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 1]])
        >>> tr.CWL(top_k=3, user="sdcg").score(scores, grades)  # DCG of the list over that of three relevant ones
        tensor([0.5307], dtype=torch.float64)
        >>> tr.CWL(top_k=3, user="sdcg", of="total_utility").score(scores, grades)  # DCG
        tensor([1.1309], dtype=torch.float64)
    """

    name = "cwl"

    of: Literal["utility", "total_utility", "depth"] = one_of(default="utility")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of != "utility":
            # Deeper reading is neither better nor worse.
            least, better = (1.0, None) if self.of == "depth" else (0.0, True)
            self.reports((least, math.inf), higher_is_better=better)

    @property
    def no_bounds_reason(self) -> str:
        # A user who is content sooner sees fewer candidates, so a better list can have a smaller total or depth.
        monotone = self.of == "utility" or self.user in BLIND_USERS
        return "" if monotone else f"whose {self.of} can fall when a relevant candidate moves up"

    @property
    def nonlinear_reason(self) -> str:
        if self.of == "depth":
            return "whose depth is not a sum of gains"
        return "" if self.user in BLIND_USERS else f"whose user {self.user!r} is guided by gains"

    def need(self) -> Need:
        return Need(self.ranks, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        empty = super().empty(ranking)
        return torch.zeros_like(empty) if self.of == "depth" else empty

    def numerator(self, ranking: Ranking) -> Tensor:
        rows = torch.arange(ranking.num_queries, device=ranking.first.device)
        values = [torch.zeros_like(ranking.num_candidates[:0])]
        # The gains at all ranks are a table far larger than the ranking, so queries are measured in chunks.
        for part in rows.split(max(1, BLOCK // 4 // self.ranks)):
            gain = ranking.take(part).gains_by_rank(self.gain_function, self.ranks).clamp(0, 1)
            seen = self.seen(gain)
            total, depth = (seen * gain).sum(-1), seen.sum(-1)
            values.append({"utility": total / depth, "total_utility": total, "depth": depth}[self.of])
        return torch.cat(values)


def _ap(metric: UserModel, gain: Tensor, rank: Tensor) -> Tensor:
    # Sums over j >= i; shifted by one rank they are the sums over j > i.
    from_here = running_sum((gain / rank).flip(-1)).flip(-1)
    return ratio(torch.nn.functional.pad(from_here[:, 1:], (0, 1)), from_here)


def _insq(metric: UserModel, gain: Tensor, rank: Tensor) -> Tensor:
    return (1 - 1 / (rank + 2 * metric.target)) ** 2


def _bpm(metric: UserModel, gain: Tensor, rank: Tensor) -> Tensor:
    gained = running_sum(gain)
    # S, over the ranks before i: the current gain changes neither the target nor the patience.
    above_the_middle = gained - gain - metric.middle * (rank - 1)
    target = metric.target + metric.benefit * above_the_middle
    patience = (metric.top_k or metric.ranks) + metric.cost * above_the_middle
    return ((gained < target - ROUNDING) & (rank < patience - ROUNDING)).to(gain.dtype)


#: users: probability to go on from each rank, given gains [query, rank] and ranks [rank]; clamped to [0, 1]
USERS: dict[str, Callable[[UserModel, Tensor, Tensor], Tensor]] = {
    "precision": lambda metric, gain, rank: torch.ones_like(rank),
    "rbp": lambda metric, gain, rank: torch.full_like(rank, metric.p),
    # With graded gains as well, the user stops at the first gain above 0.
    "rr": lambda metric, gain, rank: (gain.cummax(-1).values == 0).to(gain.dtype),
    "ap": _ap,
    "sdcg": lambda metric, gain, rank: torch.log(rank + 1) / torch.log(rank + 2),
    "insq": _insq,
    "inst": lambda metric, gain, rank: (1 - 1 / (rank + 2 * metric.target - running_sum(gain))) ** 2,
    "bpm": _bpm,
    "nerr8": lambda metric, gain, rank: 1 - gain,
    "nerr9": lambda metric, gain, rank: (1 - gain) * rank / (rank + 1),
    "nerr10": lambda metric, gain, rank: (1 - gain) * metric.p,
    "nerr11": lambda metric, gain, rank: (1 - gain) * _insq(metric, gain, rank),
}
