"""Models of users, who read a list from the top and may stop at any rank."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from torchrank.engine.sorting import descending
from torchrank.formulas.cascades import stopped
from torchrank.formulas.gains import (
    LINEAR,
    POSITIVE,
    RECIPROCAL,
    UNDISCOUNTED,
    AtLeast,
    Geometric,
    Satisfying,
    Scaled,
    gain_of,
)
from torchrank.hardware.devices import greatest, running_sum
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.metrics.base import RankingMetric, RetrievedMetric
from torchrank.metrics.item_lists import Catalogue, PerUserMetric, Recommended, item_numbers
from torchrank.names.parameters import described, fixed, flag, integer, number, one_of
from torchrank.names.types import Described
from torchrank.ranking.ranking import Gain, Ranking, cached, marked_rows, only, ratio, run_bounds, run_starts
from torchrank.state.metric import Measure

__all__ = ["CWL", "ERR", "NERR", "RBP", "TBG", "CWLCost", "Compat", "PFound", "RBPResidual", "UMeasure"]


class ERR(RankingMetric):
    r"""Expected reciprocal rank: :math:`\sum_{i \le k} \frac{1}{i} R_i \prod_{j < i} (1 - R_j)`.

    The reader stops at a candidate with probability :math:`R = (2^{grade} - 1) / 2^{max\_grade}`, or, with
    ``gain="linear"``, :math:`R = grade / max\_grade`. Grades above ``max_grade`` count as ``max_grade``, because no
    probability exceeds 1. Under ``ties="expected"`` it is the exact
    mean over all orders of the tied candidates. On an accelerator this takes one pass for each candidate of a list,
    because reading the sizes of tie groups would make the host wait.

    Source:
        Chapelle, Metzler, Zhang and Grinspan, Expected reciprocal rank for graded relevance, CIKM 2009.

    Args:
        max_grade: the largest possible grade, not only of this batch; > 0.
        gain: "exponential" or "linear", from a grade to the probability that the reader stops. Grades that are
            probabilities, as in CatBoost, need ``gain="linear", max_grade=1``.

    Raises:
        ValueError: ``max_grade`` is not a number > 0, or ``gain`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.ERR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 4, 0]]))  # 1/16 + 1/2 15/16 15/16
        tensor([0.5020], dtype=torch.float64)
    """

    name = "err"
    monotone_behind = True

    max_grade: float = number(default=4, above=0)
    gain: Literal["exponential", "linear"] = one_of(default="exponential")

    @property
    def gain_function(self) -> Gain:
        """The function from grades to the probability that the reader stops."""
        return Scaled(self.max_grade) if self.gain == "linear" else Satisfying(self.max_grade)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        """The function from ranks to the worth of stopping there."""
        return RECIPROCAL

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.ideal(self.gain_function, UNDISCOUNTED, 1) == 0

    def measure(self, ranking: Ranking) -> Tensor:
        if ranking.untied:
            return ranking.sum_up_to(self.top_k, _stopping, self.gain_function, self.discount_function)
        return stopped(ranking, ranking.gains(self.gain_function), self.discount_function, self.top_k)


@cached
def _stopping(ranking: Ranking, gain: Gain, discount: Callable[[Tensor], Tensor]) -> Tensor:
    """Probability to stop at each entry, times its discount, in a ranking without ties: float64 [query, entry]."""
    return _stops(only(ranking.retrieved(), ranking.gains(gain))) * ranking.mean_discount(discount, None)


@cached
def _ideal_running(ranking: Ranking, gain: Gain) -> Tensor:
    """ERR of the ideal order at the cutoffs 1, 2, ...: float64 [query, rank]."""
    chance = ranking.ideal_order(gain)
    return running_sum(_stops(chance) / torch.arange(1, chance.shape[1] + 1, dtype=chance.dtype, device=chance.device))


def _stops(chance: Tensor) -> Tensor:
    """Probability to stop at each rank, [query, rank], from the chance to stop there once it is reached."""
    passed = (1 - chance).cumprod(-1)
    passed[:, 1:] = passed[:, :-1].clone()
    passed[:, :1] = 1
    return passed * chance


class NERR(ERR):
    r"""Normalised expected reciprocal rank.

    :math:`nERR@k = \frac{1}{IERR@k} \sum_{i \le k} \frac{1}{i} R_i \prod_{j < i} (1 - R_j)`. This is :class:`ERR`
    divided by IERR, the ERR of the best order of all judged candidates, retrieved or not, cut at k. The best order is
    by descending grade. The reader stops at a candidate with probability R, as for :class:`ERR`.

    Source:
        Clarke, Craswell, Soboroff and Ashkan, A comparative analysis of cascade measures for novelty and diversity,
        WSDM 2011, in which ERR is divided by its value for an ideal list.

    Args:
        max_grade: the largest possible grade; see :class:`ERR`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NERR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 4, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "nerr"
    monotone_behind = True

    def measure(self, ranking: Ranking) -> Tensor:
        value = super().measure(ranking)  # first, because the ideal order takes as much memory as the ranking
        ideal = _ideal_running(ranking, self.gain_function)[:, : self.top_k]
        return ratio(value, ideal[:, -1:].sum(-1))


class PFound(ERR):
    r"""pFound, the probability that a user finds an answer: :math:`\sum_{i \le k} p^{i-1} R_i \prod_{j < i} (1 - R_j)`.

    The user stops satisfied at a candidate with probability :math:`R = grade / max\_grade`, else tired with probability
    1 - p, and reads on otherwise. It is :class:`ERR` with the discount :math:`p^{i-1}`. Grades above ``max_grade``
    count as ``max_grade``. Under ``ties="expected"`` it is the exact mean over all orders of the tied candidates.

    Source:
        Gulin, Kuralenok and Pavlov, Winning the transfer learning track of Yahoo!'s learning to rank challenge with
        YetiRank, JMLR Proceedings 14, 2011; CatBoost, ``PFound``.

    Args:
        max_grade: the largest possible grade; > 0. Grades that are probabilities need 1.
        gain: "linear" or "exponential", from a grade to the probability that it satisfies; see :class:`ERR`.
        p: probability to go on after a candidate that does not satisfy, CatBoost's ``decay``; > 0 and < 1.

    Raises:
        ValueError: ``p`` is not between 0 and 1, ``max_grade`` is not a number > 0, or ``gain`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.PFound().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0.4, 0.0, 1.0]]))  # 0.4 + 0.85^2 * 0.6
        tensor([0.8335], dtype=torch.float64)
    """

    name = "pfound"

    max_grade: float = 1
    gain: Literal["exponential", "linear"] = "linear"
    p: float = number(default=0.85, above=0, below=1)

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        return Geometric(self.p)


# The last rank that users of C/W/L see by default, as in cwl_eval.
DEEPEST = 1000

# The largest `top_k` of C/W/L. Memory grows with it, because users can go on after the end of a list.
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

    The increase of :class:`RBP` if all unjudged candidates in a list of n, and all candidates after it, were relevant.
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

    def measure(self, ranking: Ranking) -> Tensor:
        # The discounts of all ranks add up to 1 / (1 - p), also after the list. All but the judged weight is residual.
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


class CostMetric(PerUserMetric):
    """A measure of ranked ids, their grades, and a number for each item of the catalogue.

    An empty list has a value, too. A list without a relevant item counts like any other.
    """

    value_range = (0.0, math.inf)
    needs_target = True
    fewest = 0

    def describe(self, **catalogue: Tensor) -> tuple[Catalogue, int]:
        ((name, numbers),) = catalogue.items()
        numbers = item_numbers(name, numbers)
        return {name: numbers}, len(numbers)


class TBG(CostMetric):
    r"""Time-biased gain: the gain of relevant items, which falls with the time to reach them.

    :math:`\sum_{i \le k} rel_i \, c_1 \, s \, 2^{-t_i / h}`. A user reads the summary at each rank. The user clicks it
    with probability :math:`c_1` if the item is relevant, else :math:`c_0`, and saves a relevant item that was clicked
    with probability s. So the user reaches rank i at the time :math:`t_i = \sum_{j < i} T_s + c_j (a \, l_j + b)`. Here
    :math:`T_s` is the time to read a summary, and :math:`l_j` the number of words of an item. Reading takes the time a
    for each word, and b for each item. The half-life h is the time after which half of the users have stopped.

    The lists are ranked ids, because the time to reach an item depends on all items above it, judged or not. So there
    are no ties. The times of the paper are in seconds. It lets duplicates of items above take no time and gain nothing;
    remove them from the lists and judgments. The measure has no upper bound that is common to all queries. A list
    without a relevant item scores 0, also an empty one.

    Source:
        Smucker and Clarke, Time-based calibration of effectiveness measures, SIGIR 2012.

    Args:
        lengths: [item], the number of words of each item; >= 0.
        half_life: h, > 0.
        seconds_per_summary: :math:`T_s`, >= 0.
        seconds_per_word: a, >= 0.
        seconds_per_item: b, >= 0.
        click_relevant: :math:`c_1`, from 0 to 1.
        click_other: :math:`c_0`, from 0 to 1.
        save: s, from 0 to 1.
        relevance_level: a grade at or above it is relevant; > 0. Ids without grades have grade 1.

    Raises:
        ValueError: ``lengths`` is not a 1-D tensor of finite numbers >= 0, or an argument is out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.TBG(lengths=torch.tensor([500.0, 1000.0]))
        >>> metric.score(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 1]))  # 0.4928 * 2 ** (-t / 224), t = 10.952
        tensor([0.4764, 0.4928], dtype=torch.float64)
    """

    name = "tbg"

    lengths: Described[Tensor] = described()
    half_life: float = number(default=224, above=0)
    seconds_per_summary: float = number(default=4.4, least=0)
    seconds_per_word: float = number(default=0.018, least=0)
    seconds_per_item: float = number(default=7.8, least=0)
    click_relevant: float = number(default=0.64, least=0, most=1)
    click_other: float = number(default=0.39, least=0, most=1)
    save: float = number(default=0.77, least=0, most=1)
    relevance_level: float = number(default=1, above=0)

    def measure(self, lists: Recommended) -> Tensor:
        relevant = _graded_from(lists, self.relevance_level)
        reading = self.seconds_per_word * self.lengths[lists.ids].to(lists.dtype) + self.seconds_per_item
        clicked = torch.where(relevant, self.click_relevant * reading, self.click_other * reading)
        seconds = torch.where(lists.is_item, self.seconds_per_summary + clicked, 0.0)
        reached = running_sum(seconds) - seconds
        gain = self.click_relevant * self.save * torch.exp2(-reached / self.half_life)
        return torch.where(relevant, gain, 0.0).sum(-1)


class UMeasure(CostMetric):
    r"""U-measure: the gain of relevant items, which falls linearly with the text that was read before.

    :math:`\sum_{i \le k} gain_i \, \max(0, 1 - pos_i / L)`. A user reads a snippet at each rank, and of
    each relevant item a share of its text, which has :math:`l_i` characters. So
    :math:`pos_i = \sum_{j \le i} snippet + rel_j \, read \, l_j` characters are read at the end of rank i. After L
    characters nothing gains.

    The lists are ranked ids, because the position of an item depends on all items above it, judged or not. So there are
    no ties. The value is not normalised. A list without a relevant item scores 0, also an empty one.

    Source:
        Sakai and Dou, Summaries, ranked retrieval and sessions: a unified framework for information access evaluation,
        SIGIR 2013.

    Args:
        lengths: [item], the number of characters of each item; >= 0.
        patience: L, the number of characters after which reading gains nothing, > 0.
        snippet: the number of characters that are read of every item; >= 0.
        read: the share of the text that is read of a relevant item, from 0 to 1.
        gain: from the grade of a relevant item to its gain: "exponential", 2 ** grade - 1; "linear", the grade itself;
            or a callable with a name, from float64 grades to gains.
        relevance_level: a grade at or above it is relevant; > 0. Ids without grades have grade 1.

    Raises:
        ValueError: ``lengths`` is not a 1-D tensor of finite numbers >= 0, or an argument is unknown or out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.UMeasure(lengths=torch.tensor([4000.0, 8000.0]), patience=10_000)
        >>> metric.score(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 1]))  # 1 - 2000 / L and 1 - 1800 / L
        tensor([0.8000, 0.8200], dtype=torch.float64)
    """

    name = "umeasure"

    lengths: Described[Tensor] = described()
    patience: float = number(default=132_000, above=0)
    snippet: float = number(default=200, least=0)
    read: float = number(default=0.2, least=0, most=1)
    gain: Literal["linear", "exponential"] | Callable[[Tensor], Tensor] = one_of(default="exponential")
    relevance_level: float = number(default=1, above=0)

    def measure(self, lists: Recommended) -> Tensor:
        relevant = _graded_from(lists, self.relevance_level)
        text = torch.where(relevant, self.read * self.lengths[lists.ids].to(lists.dtype), 0.0)
        position = running_sum(torch.where(lists.is_item, self.snippet + text, 0.0))
        gain = gain_of(self.gain)(lists.grade.to(lists.dtype))
        return torch.where(relevant, gain * (1 - position / self.patience).clamp_min(0), 0.0).sum(-1)


class CWLCost(UserModel, BoundedGain, CostMetric):
    r"""Expected cost of a user in the C/W/L framework, per candidate or in total: :math:`\sum_i W_i \, cost_i`.

    The probability :math:`V_i` to see rank i and the share of attention :math:`W_i` follow from the gains, as in
    :class:`CWL`. Its users are known here as well. ``of`` is the number to report:

    - "cost": the expected cost (EC) per candidate, :math:`\sum_i W_i \, cost_i`.
    - "total_cost": the expected total cost (ETC), :math:`\sum_i V_i \, cost_i`.

    The lists are ranked ids, because every item that the user sees has a cost, judged or not. So there are no ties.
    The gains of the same lists are those of :class:`CWL`.

    Source:
        Moffat, Bailey, Scholer and Thomas, Incorporating user expectations and behavior into the measurement of search
        effectiveness, ACM TOIS 35(3), 2017; Azzopardi, Thomas and Moffat, cwl_eval, SIGIR 2019.

    Args:
        top_k: number of ranks that a user can see, at most 262,144; None = 1000.
        costs: [item], the cost of each item; >= 0.
        of: the number to report: "cost" or "total_cost".
        behind: the cost of a rank after the end of the list, >= 0.
        user: a name from the table of :class:`CWL`, or a callable with a name.
        p: probability to go on for "rbp" and "nerr10", > 0 and < 1.
        target: the total gain that is the aim of "insq", "inst", "bpm" and "nerr11", > 0.
        benefit, middle: the effect of gains on the target of "bpm".
        relevance_level: a grade at or above it is relevant; > 0. Ids without grades have grade 1.

    Raises:
        ValueError: ``costs`` is not a 1-D tensor of finite numbers >= 0, or an argument is unknown or out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.CWLCost(3, costs=torch.tensor([1.0, 4.0, 2.0]), user="rr")
        >>> metric.score(torch.tensor([[0, 1, 2]]), torch.tensor([1]))  # the user stops at item 1: (1 + 4) / 2
        tensor([2.5000], dtype=torch.float64)
    """

    name = "cwlcost"
    higher_is_better = False

    costs: Described[Tensor] = described()
    of: Literal["cost", "total_cost"] = one_of(default="cost")
    behind: float = number(default=1, least=0)
    cost: float = fixed(0.0, "which cuts lists at top_k")

    def width(self, lists: Recommended) -> int:
        # A user can go on after the end of the list: there are some tables [query, rank].
        return 4 * -(-self.ranks // lists.ids.shape[1])

    def measure(self, lists: Recommended) -> Tensor:
        gain = self.by_rank(lists, self.gain_function(lists.grade.to(lists.dtype)).clamp(0, 1), 0.0)
        cost = self.by_rank(lists, self.costs[lists.ids].to(lists.dtype), self.behind)
        seen = self.seen(gain)
        total = (seen * cost).sum(-1)
        return total / seen.sum(-1) if self.of == "cost" else total

    def by_rank(self, lists: Recommended, x: Tensor, behind: float) -> Tensor:
        """``x`` [query, position] at the ranks 1 to ``ranks``, and ``behind`` at ranks without an item."""
        # The last column absorbs positions without an item and ranks that no user sees.
        column = torch.where(lists.is_item, lists.rank - 1, self.ranks).clamp_max(self.ranks)
        return x.new_full((len(x), self.ranks + 1), behind).scatter(1, column, x)[:, :-1]


def _graded_from(lists: Recommended, level: float) -> Tensor:
    """Relevant items: bool [query, position]."""
    return lists.is_item & (lists.grade >= level)


# Depths are left out if all of them together have a smaller weight: it is below the precision of float64.
TINY = 1e-18


@dataclass(frozen=True)
class Tail:
    r"""The weight of a candidate that both rankings have from a depth on: :math:`T(m) = \sum_{d \ge m} p^{d-1} / d`."""

    p: float

    @property
    def last(self) -> int:
        """The last depth whose T matters."""
        return math.ceil(math.log(TINY) / math.log(self.p))

    def __call__(self, depth: Tensor) -> Tensor:
        """T of depths >= 1; of a fraction, T of the next integer."""
        last = self.last
        # A table for a p near 1 has many ranks, and only those that occur are needed.
        if last > BLOCK:
            last = greatest(depth.clamp_max(last), last)
        ranks = torch.arange(1, last + 1, dtype=depth.dtype, device=depth.device)
        terms = self.p ** (ranks - 1) / ranks
        # The terms after the table are the whole series less the terms in it.
        rest = (-math.log1p(-self.p) / self.p - terms.sum()).clamp_min(0) if last < self.last else 0.0
        sums = running_sum(terms.flip(-1)).flip(-1) + rest
        return torch.nn.functional.pad(sums, (0, 1)).take(depth.ceil().clamp_max(last + 1).long() - 1)


@dataclass(frozen=True, eq=False)
class IdealRanks:
    """Ranks in the ideal ranking that is most like a ranking: by grade, and equal grades by the ranking.

    A class is the candidates of one tie group of the ranking with one grade. All are float64 [query, entry].
    """

    #: best rank of an entry in the ranking
    first: Tensor
    #: size of its tie group; 0 = not retrieved
    tied: Tensor
    #: rank of an entry in the ideal ranking; each order of a class has the same ranks
    rank: Tensor
    #: number of candidates above the class in the ideal ranking
    above: Tensor
    #: size of the class
    size: Tensor
    #: log of the probability that the candidates of the class up to this entry have the first ranks of the tie group
    log_first: Tensor

    def take(self, entries: Tensor) -> IdealRanks:
        """Some entries of all queries, given by their numbers, int64 [entry]: fields [entry]."""
        return IdealRanks(*(x.flatten()[entries] for x in vars(self).values()))


@cached
def ideal_ranks(ranking: Ranking) -> IdealRanks:
    """The ideal ranks of all entries of a ranking. Entries without a positive grade follow all others."""
    grade, order, starts = descending(ranking.gains(LINEAR))
    judged = ranking.judged_gains(LINEAR)
    higher = judged.shape[1] - torch.searchsorted(judged.sort(dim=-1).values, grade, right=True)
    begin = run_bounds(starts)[0]
    start, stop = run_bounds(starts | run_starts(ranking.first.gather(-1, order)))
    position = torch.arange(grade.shape[1], device=grade.device)
    tied, size = ranking.tied.gather(-1, order), (stop - start).to(grade.dtype)
    # Candidate h of the r in the class is in the next of the n places with probability (r - h) / (n - h).
    number = (position - start).to(grade.dtype)
    log = torch.where(tied > number, ((size - number) / (tied - number)).log(), 0.0)
    sums = torch.nn.functional.pad(running_sum(log), (1, 0))
    log_first = sums[:, 1:] - sums.gather(-1, start)

    def by_entry(x: Tensor) -> Tensor:
        return torch.empty_like(grade).scatter_(-1, order, x.to(grade.dtype))

    above = higher + start - begin
    fields = (above + position - start + 1, above, size, log_first)
    return IdealRanks(ranking.first, ranking.tied, *(by_entry(x) for x in fields))


class Compat(RankingMetric):
    r"""Compatibility: the rank-biased overlap with the most similar ideal ranking.

    :math:`\sum_{d=1}^D p^{d-1} \frac{|A_d \cap I_d|}{d}`, divided by the value of the ideal ranking itself. Here
    :math:`A_d` and :math:`I_d` are the first d candidates of the list and of the ideal ranking. The ideal ranking has
    the candidates of positive grade, retrieved or not, in descending order of grade. Equal grades are in the order of
    the list, which gives the largest overlap, and those that were not retrieved come last. D is the length of the
    longer of the two rankings, at most ``top_k``.

    Only the order of the grades counts, as in a ranking by preferences. Under ``ties="expected"`` it is the exact mean
    over all orders of the tied candidates, each with its own ideal ranking. Each candidate in a tie group with several
    grades then costs one pass over the ranks of the group.

    Source:
        Clarke, Vtyurina and Smucker, Assessing top-k preferences, TOIS 39(3), 2021; D and ``normalize`` as in its
        script ``compatibility.py``.

    Args:
        top_k: count only the first ``top_k`` depths; None = all of them.
        p: the probability that the user goes on to the next depth, between 0 and 1.
        normalize: divide by the value of the ideal ranking. If False, divide by the sum of the weights
            :math:`p^{d-1}` of all D depths; few candidates of positive grade then leave 1 out of reach.

    Raises:
        ValueError: p is not between 0 and 1, or ``normalize`` is not a bool.

    Example:
        >>> import torch, torchrank as tr
        >>> # p = 1/2: (0/1 + 1/2 * 2/2 + 1/4 * 2/3) / (1/1 + 1/2 * 2/2 + 1/4 * 2/3)
        >>> tr.Compat(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 3, 0]]))
        tensor([0.4000], dtype=torch.float64)
    """

    name = "compat"
    value_range = (0.0, 1.0)

    p: float = number(default=0.95, above=0, below=1)
    normalize: bool = flag(default=True)

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return (ranking.judged_gains(LINEAR) > 0).sum(-1) == 0

    def measure(self, ranking: Ranking) -> Tensor:
        several = (ranking.judged_gains(LINEAR) > 0).sum(-1).to(ranking.first.dtype)
        depth = torch.maximum(ranking.num_candidates, several).clamp_max(self.top_k or math.inf)  # NaN if unknown
        behind = Tail(self.p)(depth.nan_to_num(nan=2.0**60) + 1)
        value = self.overlap(ranking, behind.unsqueeze(-1))
        if self.normalize:
            # A candidate at rank j of both rankings is in their overlap from depth j on.
            ideal = ranking.ideal(POSITIVE, Tail(self.p), self.top_k) - torch.minimum(several, depth) * behind
        else:
            ideal = (1 - self.p**depth) / (1 - self.p)
        return ratio(value, torch.where(depth.isnan(), math.nan, ideal))

    def overlap(self, ranking: Ranking, behind: Tensor) -> Tensor:
        """Sum over the entries of T(m) - T(D + 1); m is the depth from which both rankings have the entry: [query].

        ``behind`` is T(D + 1), float64 [query, 1].
        """
        ideal, tail = ideal_ranks(ranking), Tail(self.p)
        gaining = ranking.hit(0) & (ranking.gains(LINEAR) > 0)
        depth = torch.maximum(ranking.first, ideal.rank)
        inside = gaining & (depth <= (self.top_k or math.inf))
        value = torch.where(inside, tail(depth) - behind, 0.0)
        if ranking.untied:
            return value.sum(-1)
        # An entry ranks after its ideal rank in every order of its class, unless more candidates precede the class in
        # the ideal ranking than in the list. So its m is its own rank.
        spread = ranking.mean_discount(tail, self.top_k) - ranking.prob_in_top_k(self.top_k) * behind
        tied = gaining & (ranking.tied > 1)
        early = tied & (ideal.above > ranking.first - 1)
        value = torch.where(tied, torch.where(early, 0.0, spread), value).flatten()
        flat = early.flatten()
        chosen = marked_rows(flat.unsqueeze(-1), early.shape[1])
        entries = ideal.take(chosen)
        longest = greatest(entries.tied, ranking.depth, early.shape[1])
        mean = self.mean_of_ties(entries, behind.expand(gaining.shape).flatten()[chosen], longest)
        value[chosen] = torch.where(flat[chosen], mean, value[chosen])
        return value.view(gaining.shape).sum(-1)

    def mean_of_ties(self, entries: IdealRanks, behind: Tensor, longest: int) -> Tensor:
        """The mean of T(m) - T(D + 1) for the entry that is number h of the r in its class: float64 [entry].

        It is at place x of the n in its tie group with probability C(x - 1, h - 1) C(n - x, r - h) / C(n, r). n is at
        most ``longest``.
        """
        tail = Tail(self.p)
        x = torch.arange(1, min(longest, tail.last) + 1, dtype=behind.dtype, device=behind.device)
        parts = [behind[:0]]
        for part in torch.arange(len(behind), device=behind.device).split(max(1, BLOCK // 4 // max(1, len(x)))):
            members = entries.take(part)
            n, j, r, above = (y.unsqueeze(-1) for y in (members.tied, members.rank, members.size, members.first - 1))
            h = j - members.above.unsqueeze(-1)
            # The ratio of the probabilities of x and x - 1, from the first possible x on, which is h.
            step = (x - 1) * (n - x + 1 - r + h) / ((x - h) * (n - x + 1))
            log = running_sum(torch.where(x > h, step.clamp_min(0), 1.0).log()) + members.log_first.unsqueeze(-1)
            chance = torch.where((x >= h) & (x <= n - r + h), log.exp(), 0.0)
            depth = torch.maximum(above + x, j)
            weight = torch.where(depth <= (self.top_k or math.inf), tail(depth) - behind[part].unsqueeze(-1), 0.0)
            parts.append((chance * weight).sum(-1))
        return torch.cat(parts)
